-- Comes back to whoever listens on this very connection, or nobody is there: a pooler takes LISTEN and does nothing.
select pg_notify('aiflow_event', %(mark)s)
