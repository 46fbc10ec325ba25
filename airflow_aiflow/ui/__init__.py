"""The pages inside Airflow: hand-written modules under ``static/``, how they are named to Airflow and served."""
