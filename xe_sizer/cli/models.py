"""`xe-sizer models`: what fits a card."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from xe_sizer.cli.command import Invocation, answering
from xe_sizer.cli.options import SERVING, TRAINING
from xe_sizer.cli.text import TextCommand
from xe_sizer.errors import InputError, Location, Problem, attempt
from xe_sizer.profiles.finder import BUILT_IN
from xe_sizer.scenario.quantities import quantity

app = typer.Typer(add_completion=False)
_HELP = """List the models that fit a GPU, how fast they run and how long a context they take.

Training is sized with sequences of --context tokens without padding. --serve sizes inference, one request at a time,
in the widest format of its engine that fits unless --weights names one.

\b
Examples:
  xe-sizer models --gpu rtx-4090
  xe-sizer models --gpu rtx-4090 --job lora --context 8k
  xe-sizer models --gpu rtx-4090 --serve --part qwen
"""
CONTEXT = "4096"
GpuOption = Annotated[str | None, typer.Option("--gpu", metavar="NAME", help="Accelerator profile; or name a server.")]
ServerOption = Annotated[str | None, typer.Option("--server", metavar="NAME", help="Server profile; all of its GPUs.")]
GpusOption = Annotated[str | None, typer.Option("--gpus", metavar="N", help="Number of GPUs. Default: 1.")]
ContextOption = Annotated[str, typer.Option("--context", metavar="TOKENS", help="Tokens of a sequence, e.g. 8k.")]
JobOption = Annotated[
    str | None, typer.Option("--job", metavar="JOB", help="Training method. Default: the one that needs least.")
]
StackOption = Annotated[str | None, typer.Option("--stack", metavar="NAME", help="Training framework, e.g. unsloth.")]
ServeOption = Annotated[bool, typer.Option("--serve", help="Inference in place of training.")]
EngineOption = Annotated[str | None, typer.Option("--engine", metavar="NAME", help="Inference engine, e.g. llama.cpp.")]
WeightsOption = Annotated[
    str | None, typer.Option("--weights", metavar="FORMAT", help="Format of weights that are served.")
]
HostMemoryOption = Annotated[
    str | None,
    typer.Option("--host-memory-gib", metavar="N", help="Host memory, also that a GPU shares with its CPU, in GiB."),
]
PartOption = Annotated[str, typer.Option("--part", metavar="TEXT", help="Only models with this in their name.")]
ConfidenceOption = Annotated[
    str | None, typer.Option("--confidence", metavar="X", help="Probability with which memory suffices. Default: 75%.")
]


@app.command("models", cls=TextCommand, help=_HELP)
@answering()
def models_command(
    *,
    gpu: GpuOption = None,
    server: ServerOption = None,
    gpus: GpusOption = None,
    host_memory: HostMemoryOption = None,
    context: ContextOption = CONTEXT,
    job: JobOption = None,
    stack: StackOption = None,
    serve: ServeOption = False,
    engine: EngineOption = None,
    weights: WeightsOption = None,
    part: PartOption = "",
    confidence: ConfidenceOption = None,
    how: Invocation,
) -> int:
    from xe_sizer.studies.models import lightest_job, models

    if gpu is None and server is None:
        raise InputError(Problem("name a GPU or a server", Location("--gpu"), "for example --gpu rtx-4090"))
    of_service = {"--engine": engine, "--weights": weights}
    told = [option for option, value in of_service.items() if value is not None]
    if told and not serve:
        raise InputError([Problem("is for inference", Location(option), "add --serve") for option in told])
    # A scenario names a model; each of the catalogue takes the place of this one.
    flags: dict[str, object] = {
        "model": BUILT_IN.names("model")[0],
        "gpu": gpu,
        "server": server,
        "host_memory_gib": host_memory,
        "limits.confidence": confidence,
    }
    tokens = _tokens(context)
    flags["gpus"] = gpus if gpus is not None or server is not None else "1"
    if serve:
        flags |= {"serve.engine": engine, "serve.weights": weights}
    else:
        flags |= {"job": job or lightest_job(), "stack": stack}
    asked = how.scenario(SERVING if serve else TRAINING, None, flags)

    return how.write(models(asked, how.registry, tokens, serving=serve, part=part.lower()))


def _tokens(text: str) -> int:
    """A context, as 8k or 8192. Raises InputError."""
    found = attempt(partial(quantity, share=False), text, "seq_len", int) if not text.isdecimal() else int(text)
    if not isinstance(found, int) or found < 1:
        raise InputError(Problem(f"'{text}' is no number of tokens", Location("--context"), "for example 8k or 8192"))
    return found
