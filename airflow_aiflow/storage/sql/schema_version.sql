-- Which schema is this, and does the role's session keep what the statements rely on?
select
    (select version_num from aiflow.schema_version),
    current_setting('default_transaction_isolation'),
    current_setting('synchronous_commit'),
    current_setting('server_encoding')
