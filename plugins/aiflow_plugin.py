"""
Registers aiflow's plugin in deployments that use Airflow's plugins folder.

Where the package is installed, its entry point has registered the plugin already; a second one of the same name would
leave an import error in every component for ever. So this file gives the plugin only where no entry point does: for
example where the package is on PYTHONPATH without having been installed.
"""

from importlib.metadata import entry_points

if not any(point.value.startswith("airflow_aiflow.") for point in entry_points(group="airflow.plugins")):
    from airflow_aiflow.plugin import AiflowPlugin as AiflowPlugin
