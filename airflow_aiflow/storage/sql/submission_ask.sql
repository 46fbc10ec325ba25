-- The first wish of a kind stands until it is taken back. What has finished is asked nothing; what is to be cancelled is
-- held no more.
update aiflow.submission set
    cancel_asked_at = case %(cancel)s::boolean
        when true then coalesce(cancel_asked_at, clock_timestamp()) when false then null else cancel_asked_at
    end,
    hold_asked_at = case
        when %(cancel)s::boolean then null
        when %(hold)s::boolean then coalesce(hold_asked_at, clock_timestamp())
        when not %(hold)s::boolean then null
        else hold_asked_at
    end
where submission_id = %(submission_id)s and finished_at is null
    and (%(hold)s::boolean is null or cancel_asked_at is null)
returning submission_id
