"""
Embed the paragraphs of a file every night: a paragraph that was embedded in the last month costs nothing again.

Kill it wherever you like: the next try embeds what was in flight, and what is left.
"""

from datetime import timedelta

from airflow.sdk import Param, dag, task

from airflow_aiflow import Flow
from airflow_aiflow.demo.encoder import SentenceEncoder
from airflow_aiflow.demo.paragraphs import read_lines


@dag(
    schedule=None,
    params={
        "input": Param("/data/paragraphs.jsonl", type="string", description="JSON lines, each with 'text'"),
        "counted_in": Param(None, type=["null", "string"], description="File that gets the size of each batch"),
        "batch_size": Param(32, type="integer", minimum=1),
    },
)
def nightly_embeddings():
    @task.durable(retries=10, retry_delay=timedelta(seconds=2))
    def embed(flow: Flow, params=None):
        paragraphs = flow.step("read", read_lines, params["input"])
        vectors = flow.embed(
            "paragraph",
            paragraphs,
            encoder=SentenceEncoder(params["counted_in"]),
            batch_size=params["batch_size"],
            max_workers=2,
            reuse=timedelta(days=30),
        )
        return {"paragraphs": len(paragraphs), "vectors": vectors}

    embed()


nightly_embeddings()
