delete from aiflow.upload where upload_id = %(upload_id)s and checked_at is null returning upload_id
