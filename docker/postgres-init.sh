#!/usr/bin/env bash
# Two databases and three roles, made once, when the server's volume is empty:
#   airflow   (owner airflow)        Airflow's metadata
#   aiflow    (owner aiflow_owner)   the ledger: aiflow_owner migrates it, aiflow reads and writes rows and nothing else
# The passwords come from the environment and are quoted by psql; none stands on a command line.
set -euo pipefail

psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --username "${POSTGRES_USER:-postgres}" --dbname postgres <<'SQL'
\getenv airflow_password AIRFLOW_DB_PASSWORD
\getenv owner_password AIFLOW_OWNER_PASSWORD
\getenv aiflow_password AIFLOW_DB_PASSWORD

CREATE ROLE airflow LOGIN PASSWORD :'airflow_password';
CREATE ROLE aiflow_owner LOGIN PASSWORD :'owner_password';
CREATE ROLE aiflow LOGIN PASSWORD :'aiflow_password';
-- By ALTER ROLE, never by session: a record is on disk before it is used, also behind a pooler.
ALTER ROLE aiflow SET synchronous_commit = on;

CREATE DATABASE airflow OWNER airflow;
REVOKE ALL ON DATABASE airflow FROM PUBLIC;
CREATE DATABASE aiflow OWNER aiflow_owner;
REVOKE ALL ON DATABASE aiflow FROM PUBLIC;
GRANT CONNECT ON DATABASE aiflow TO aiflow;

\connect aiflow
-- What the owner creates later, the tasks' role may use.
ALTER DEFAULT PRIVILEGES FOR ROLE aiflow_owner GRANT USAGE ON SCHEMAS TO aiflow;
ALTER DEFAULT PRIVILEGES FOR ROLE aiflow_owner GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO aiflow;
ALTER DEFAULT PRIVILEGES FOR ROLE aiflow_owner GRANT USAGE, SELECT ON SEQUENCES TO aiflow;
ALTER DEFAULT PRIVILEGES FOR ROLE aiflow_owner GRANT EXECUTE ON FUNCTIONS TO aiflow;
SQL
