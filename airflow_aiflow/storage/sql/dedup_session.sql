-- Have the server notice within a minute that a client's machine is gone; a killed client's connection ends at once.
select
    pg_catalog.set_config('tcp_keepalives_idle', '30', false),
    pg_catalog.set_config('tcp_keepalives_interval', '10', false),
    pg_catalog.set_config('tcp_keepalives_count', '3', false)
