"""The embedded stack: a real PostgreSQL, S3 server and Airflow on one machine, without docker and without root."""
