"""Where Airflow's world is read: connections, the task process and its context."""
