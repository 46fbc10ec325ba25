"""
The whole error tree.

One root, one suffix. ``retryable`` says whether a new attempt of the same task can help without a person. Control-flow
signals (an attempt that was superseded, a task that gives its slot back) are no errors and derive from
``BaseException``, so that ``except Exception`` in an author's code can't swallow them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from airflow_aiflow.durable.inbox import Form
    from airflow_aiflow.durable.record import Usage


class AiflowError(Exception):
    """Be the root of every error that this package raises."""

    #: Whether running the same task again can help without anyone changing anything.
    retryable: ClassVar[bool] = False


class AiflowConfigError(AiflowError):
    """Say that a connection, an option or a setting is missing or wrong; the message names it and the way out."""


# --- ledger -----------------------------------------------------------------------------------------------------------


class LedgerError(AiflowError):
    """Be the root of what can go wrong between us and the ledger."""


class LedgerUnavailableError(LedgerError):
    """Say that the ledger can't be reached now: nothing was started on the strength of a guess."""

    retryable = True


class LedgerSchemaError(LedgerError):
    """Say that the ledger's schema is missing, older or newer than this code."""


# --- payloads and artifacts -------------------------------------------------------------------------------------------


class PayloadError(AiflowError):
    """Be the root of what can't be stored or read back."""


class PayloadEncodeError(PayloadError):
    """
    Say that a value can't be stored, and where in it the trouble sits.

    :param path: where in the value, such as ``a[0].score``; empty for the value itself.
    :param reason: what is there, why it can't be stored and the way out.
    """

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path or 'the value'}: {reason}")


class PayloadDecodeError(PayloadError):
    """Say that stored bytes are not what this code wrote, or need an adapter that is not registered here."""


class SealError(PayloadError):
    """Say that a recorded row does not carry the seal that its content asks for: it was edited or copied by hand."""


class ArtifactError(AiflowError):
    """Be the root of what can go wrong with the artifact store."""


class ArtifactUnavailableError(ArtifactError):
    """Say that the artifact store can't be reached, or refuses us, now."""

    retryable = True


class ArtifactMissingError(ArtifactError):
    """Say that an artifact that a record names is not in the store. Never turned into ``None``."""


class ArtifactDamagedError(ArtifactError):
    """Say that an artifact's bytes do not hash to its address."""


# --- flow -------------------------------------------------------------------------------------------------------------


class FlowError(AiflowError):
    """Be the root of misuse of a flow."""


class NoFlowError(FlowError):
    """Say that there is no flow here: the code runs outside a durable task."""


class FlowClosedError(FlowError):
    """Say that the flow has ended (parked, superseded, finished) and takes no further call."""


class FlowOptionError(FlowError):
    """Say that an option is unknown or wrong."""


class StepInputError(FlowError):
    """Say that an argument has no canonical form, so that no step key exists; nothing ran."""


class StepTimeoutError(FlowError):
    """Say that a step did not end within its own ``timeout``."""

    retryable = True


# --- effects ----------------------------------------------------------------------------------------------------------


class ItemsFailedError(FlowError):
    """Say that more items of a map failed than its ``on_item_error`` lets, and which."""

    retryable = True


class ItemFileError(FlowError):
    """Say which line of a file of items can't be read, and why."""


class ItemInputError(FlowError):
    """Say which item of a batch can't be asked about, and why; nothing was sent for it."""


class ItemLostError(FlowError):
    """Say that an item of a map took its process with it more than once: it is not begun again."""


class EffectError(AiflowError):
    """Be the root of what concerns an effect. Unless a message says otherwise, nothing was sent."""


class EffectOptionError(EffectError):
    """Say that an effect's options do not fit together; raised before the intent."""


class EffectKeyRequiredError(EffectError):
    """Say that this call needs a business key of its own; nothing was sent for it."""


class EffectConflictError(EffectError):
    """Say that an effect of this identity was done, or is at work, with another request; nothing was sent."""


class EffectInDoubtError(EffectError):
    """Say that an earlier call has no known outcome and that a person must decide; nothing was sent now."""


class EffectBusyError(EffectError):
    """Say that another live execution is at work on the same effect; nothing was sent by this one."""

    retryable = True


class EffectDeclinedError(EffectError):
    """Say that a person declined an effect that needs approval, or told the waiting task to fail; nothing was sent."""


class ApprovalDeclinedError(EffectDeclinedError):
    """
    Say that a person declined an effect that needs approval; nothing was sent.

    :param note: what the person added.
    """

    def __init__(self, message: str, note: str = "") -> None:
        self.note = note
        super().__init__(message)


class EffectExpiredError(EffectError):
    """Say that the effect's record is older than its ``dedup_ttl`` while its run can still be cleared."""


class DedupTableError(EffectError):
    """Say that a database's dedup table is missing, may not be used, or belongs to another store."""


class QuestionTimeoutError(AiflowError):
    """Say that nobody answered a question in its time."""


class JobFailedError(AiflowError):
    """Say that a job of ``flow.job`` ended without success, in the provider's own word."""


class EffectTimeoutError(EffectError):
    """Say that the call did not end within the effect's ``timeout``: its outcome is unknown."""


class EffectNotAppliedError(EffectError):
    """
    Raise this inside an effect's function to say that the target surely did not apply the call.

    :param message: what happened.
    :param retry_after: seconds to wait before the next try, where the target said so.
    """

    retryable = True

    def __init__(self, message: str = "the effect was surely not applied", *, retry_after: float | None = None) -> None:
        self.retry_after = retry_after
        super().__init__(message)


# --- models -----------------------------------------------------------------------------------------------------------


class ModelError(AiflowError):
    """Be the root of what concerns a model call."""


class ModelIncompleteError(ModelError):
    """Say that a body or stream ended without its end: it is no answer and is not recorded."""

    retryable = True


class ModelTimeoutError(ModelError):
    """Say that a model call passed its total deadline."""

    retryable = True


class ModelUnavailableError(ModelError):
    """
    Say that a model call was surely not served now: no connection, a rate limit, an overloaded or broken server.

    :param message: what happened.
    :param status_code: of the provider's answer, where there was one.
    :param retry_after: seconds to wait before the next try, where the provider said so.
    """

    retryable = True

    def __init__(self, message: str, *, status_code: int | None = None, retry_after: float | None = None) -> None:
        self.status_code = status_code
        self.retry_after = retry_after
        super().__init__(message)


class ModelRequestError(ModelError):
    """
    Say that the provider refuses this call as it is: credentials, an unknown model, a quota, a request it rejects.

    :param message: what happened.
    :param status_code: of the provider's answer, where there was one.
    """

    def __init__(self, message: str, *, status_code: int | None = None) -> None:
        self.status_code = status_code
        super().__init__(message)


class ModelOutputError(ModelError):
    """
    Say that a paid answer came and can't be used: it does not fit the output type, or was filtered or cut.

    :param message: what is wrong, without the answer's text.
    :param usage: what the call cost.
    """

    retryable = True

    def __init__(self, message: str, *, usage: Usage | None = None) -> None:
        self.usage = usage
        super().__init__(message)


class BudgetExceededError(ModelError):
    """Say that a model call was not made because its budget might not hold; raise the budget and clear the task."""


# --- embedded stack ---------------------------------------------------------------------------------------------------


class RunNotFoundError(AiflowError):
    """Say that a run, or a task of it, is not there; nothing was changed."""


class ClearRefusedError(AiflowError):
    """Say why a run is not cleared as it stands; nothing was changed."""


class AirflowUnavailableError(AiflowError):
    """Say that Airflow's REST API gives no answer; a change that was asked for may have been carried out."""

    retryable = True


class AirflowRefusedError(AiflowError):
    """
    Say that Airflow's REST API refused a request.

    :param method: HTTP method.
    :param path: what follows ``/api/v2``.
    :param status: HTTP status.
    :param body: the answer, of which the beginning is shown.
    """

    def __init__(self, method: str, path: str, status: int, body: str) -> None:
        self.status = status
        self.body = body
        super().__init__(f"Airflow's API refused {method} {path}: {status} {body[:500]}")


class SubmissionRefusedError(AiflowError):
    """
    A submission can't be taken; nothing was written.

    :param pointer: to the part of the request that is wrong (RFC 6901).
    """

    def __init__(self, message: str, pointer: str = "") -> None:
        self.pointer = pointer
        super().__init__(message)


class StackError(AiflowError):
    """Say that a part of the embedded stack is missing, in use or can't start; the message names it and the way out."""


# --- control flow (no errors) -----------------------------------------------------------------------------------------


class FlowSignal(BaseException):
    """Be the root of control flow that an author's ``except Exception`` must not swallow."""


class AttemptSuperseded(FlowSignal):
    """A later attempt holds the fence: this one starts nothing more and ends."""


class AttemptCancelled(FlowSignal):
    """A person cancelled the run: this attempt starts nothing more, takes back what it is asked to, and ends."""


class AttemptParked(FlowSignal):
    """
    The attempt gives its worker slot back and is to be called again.

    :param delay: seconds after which to come back.
    :param why: one line for the log.
    """

    def __init__(self, delay: float, why: str) -> None:
        self.delay = delay
        self.why = why
        super().__init__(why)


class AttemptAsks(AttemptParked):
    """
    The attempt waits for a person: the slot goes back, and a form of the host's is a door to the inbox.

    :param form: what to show.
    :param delay: seconds after which to look into the inbox again where no form can be shown.
    """

    def __init__(self, form: Form, delay: float, why: str) -> None:
        self.form = form
        super().__init__(delay, why)
