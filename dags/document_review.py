"""
Review a folder of documents: a summary of each page, a verdict on each document, one report, one mail, one record.

Kill it wherever you like: the next try asks the model only what it was not asked before, and sends no second mail.
"""

from datetime import timedelta

from airflow.sdk import Param, dag, task
from pydantic import BaseModel, Field

from airflow_aiflow import Flow
from airflow_aiflow.demo.documents import read_documents
from airflow_aiflow.demo.mail import send_report
from airflow_aiflow.demo.pages import by_document, split_into_pages
from airflow_aiflow.demo.records import create_record
from airflow_aiflow.demo.report import render_csv, render_html
from airflow_aiflow.demo.review import Review

SUMMARISE = "Summarise this page of a contract in two sentences.\n\n"
ASSESS = "Assess the risk of signing a contract with these pages, from 1 (very low) to 5 (very high).\n\n"


class Verdict(BaseModel):
    title: str
    risk: int = Field(ge=1, le=5)
    reasons: list[str]


@dag(
    schedule=None,
    params={
        "folder": Param(None, type=["null", "string"], description="Empty: the licence texts installed here"),
        "limit": Param(None, type=["null", "integer"], minimum=1, description="Read at most so many documents"),
        "model": Param("pydanticai_default", type="string", description="Connection of the model"),
        "recipient": Param("legal@example.com", type="string", format="email"),
    },
)
def document_review():
    @task.durable(retries=10, retry_delay=timedelta(seconds=2))
    def review(flow: Flow, params=None):
        model, to = params["model"], params["recipient"]
        reading = flow.step("read", read_documents, params["folder"], params["limit"])
        pages = [page for document in reading.documents for page in split_into_pages(document)]
        summaries = flow.llm_map("page", [SUMMARISE + page.text for page in pages], llm_conn_id=model)
        chapters = by_document(pages, summaries)
        questions = [ASSESS + "\n\n".join(chapter) for chapter in chapters.values()]
        verdicts = flow.llm_map("assess", questions, output_type=Verdict, llm_conn_id=model)
        found = Review(reading, chapters, verdicts, model)
        report = flow.save(render_html(found), name="report.html")
        table = flow.save(render_csv(found), name="report.csv")
        flow.effect("mail", send_report, to, found.letter(), report, key=f"{reading.digest}/{to}", identity="key")
        flow.effect("record", create_record, found.record(), key=reading.digest, identity="key", on_in_doubt="retry")
        return {"pages": len(pages), "documents": len(chapters), "report": report, "table": table}

    review()


document_review()
