"""What Airflow's API server serves for this package, mounted under ``/aiflow``. Imported there alone."""
