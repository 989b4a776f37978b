"""What a scenario of reinforcement learning asks that its method, its stack or the engine of its answers cannot do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from xe_sizer.reinforcement.resolved import ABORT, DRAIN, GO_ON
from xe_sizer.scenario.conflicts import (
    Asked,
    Found,
    indivisible,
    of_model,
    of_one_memory,
    of_server,
    too_many_stages,
    unknown_precision,
)
from xe_sizer.serving.conflicts import (
    engine_has_fp4,
    model_decodes,
    only_experts_are_narrow,
    queries_pick_keys,
)

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.laws.hardware import Server
    from xe_sizer.reinforcement.resolved import Settings
    from xe_sizer.scenario.scenario import Scenario
    from xe_sizer.software.engine import Engine
    from xe_sizer.software.number_formats import Scheme
    from xe_sizer.software.stack import Stack
    from xe_sizer.training.methods import Rollout


class AskedIterations(Asked):
    """A scenario of reinforcement learning, what its names stand for, and the settings of an iteration.

    engine, scheme : that write answers, and in which formats
    None stands for what is not known.
    """

    def __init__(
        self, scenario: Scenario, model: ModelShape | None, server: Server | None, method: Rollout, settings: Settings,
        stack: Stack, engine: Engine | None = None, scheme: Scheme | None = None,
    ) -> None:  # fmt: skip
        super().__init__(scenario, model, server, scenario.values.gpus)
        self.rollout = scenario.values.rollout
        self.method = method
        self.settings = settings
        self.stack = stack
        self.engine = engine
        self.scheme = scheme


Rule = Callable[[AskedIterations], Found]
NAMES = {"critic": "critic", "reward": "reward model", "reference": "reference", "teacher": "teacher"}
"""Models beside the actor by their sections."""


def groups_compare(asked: AskedIterations) -> Found:
    """Groups of answers that cannot be compared."""
    group, method = asked.settings.asked.group, asked.method
    if group < method.least_group:
        message = f"{asked.scenario.values.job} compares the responses to a prompt, and there is {group}"
        yield "rollout.group", message, f"give at least {method.least_group}, as {method.group}"


def answers_fit_their_limit(asked: AskedIterations) -> Found:
    """Answers whose mean is above the length at which they are cut."""
    rollout, most = asked.rollout, asked.rollout.max_output_tokens
    if most is not None and (rollout.output_tokens or 0) > most:
        message = f"'output_tokens' ({rollout.output_tokens:,.0f}) is above 'max_output_tokens' ({most:,})"
        yield "rollout.output_tokens", message, "responses are truncated there: the mean is after truncation"


def lengths_are_said_once(asked: AskedIterations) -> Found:
    """A log of lengths beside a mean or a spread of them."""
    for name in ("output_tokens", "output_spread"):
        if asked.rollout.lengths is not None and getattr(asked.rollout, name) is not None:
            yield f"rollout.{name}", f"'{name}' does not go with 'lengths'", "the log says how long responses are"


def calls_have_turns(asked: AskedIterations) -> Found:
    """Settings of calls where a response has one turn, and nothing starts before it."""
    given = sorted(
        key for key in asked.scenario.origin if key.startswith("environment.") and key != "environment.turns"
    )
    if given and asked.settings.asked.environment is None:
        name = given[0].partition(".")[2]
        hint = f"{asked.setting('environment.turns', 4)} says in how many turns a response is written"
        yield given[0], f"'{name}' needs 'turns' above 1", hint


def workers_verify(asked: AskedIterations) -> Found:
    """Workers that rate answers without a time that it takes."""
    if asked.rollout.verifier_workers is not None and not asked.rollout.verifier_s:
        hint = "say how long rating one response takes"
        yield "rollout.verifier_workers", "'verifier_workers' needs 'verifier_s'", hint


def sequences_hold_answers(asked: AskedIterations) -> Found:
    """Sequences that are shorter than a prompt with its longest answer."""
    seq_len, settings = asked.scenario.values.train.seq_len, asked.settings
    needed = settings.asked.read + settings.answers.longest
    if seq_len is not None and seq_len < needed:
        message = f"'seq_len' ({seq_len:,}) cuts prompts with their responses, of up to {needed:,.0f} tokens"
        yield "train.seq_len", message, "leave it out, or lower rollout.max_output_tokens"


def pools_agree(asked: AskedIterations) -> Found:
    """Ways to share the GPUs that contradict each other."""
    rollout, gpus = asked.rollout, asked.gpus
    if rollout.colocated and rollout.gpus is not None:
        message = "'colocated' responses are generated on the GPUs that train, but 'gpus' names others"
        yield "rollout.gpus", message, "remove one of them"
    if rollout.colocated and rollout.asynchronous:
        message = "colocated generation takes turns with the training, never 'asynchronous'"
        yield "rollout.asynchronous", message, "remove one of them"
    if rollout.max_staleness is not None and not rollout.asynchronous:
        both = asked.setting("rollout.asynchronous", True)
        hint = f"without it training waits for responses of the newest weights: write {both} too, or leave it out"
        yield "rollout.max_staleness", "'max_staleness' needs 'asynchronous'", hint
    if rollout.gpus is not None and gpus is not None and rollout.gpus >= gpus:
        message = f"'gpus' of the rollout ({rollout.gpus}) leave none of the {gpus} to train"
        yield "rollout.gpus", message, "'gpus' counts those of both; give fewer that only generate"


def updates_agree(asked: AskedIterations) -> Found:
    """Ways to bring new weights that contradict each other."""
    rollout = asked.rollout
    if rollout.update is not None and rollout.partial is not None and rollout.partial != (rollout.update != DRAIN):
        message = f"'update: {rollout.update}' contradicts 'partial: {str(rollout.partial).lower()}'"
        yield (
            "rollout.update",
            message,
            f"responses that are not waited for are '{ABORT}' or '{GO_ON}'; remove one of them",
        )
    if rollout.transport is not None and (rollout.colocated or not asked.stack.rollout.apart):
        message = f"'transport: {rollout.transport}' is of GPUs that only generate"
        yield "rollout.transport", message, "leave it out: weights are handed on where they are"


def stack_shares_so(asked: AskedIterations) -> Found:
    """Ways to share the GPUs that the stack does not have."""
    rollout, stack = asked.rollout, asked.stack
    if rollout.asynchronous and not stack.rollout.asynchronous:
        message = f"the stack {stack.name} does not generate responses while it trains"
        yield "rollout.asynchronous", message, "leave it out, or choose a stack that does"
    if (rollout.gpus is not None or rollout.colocated is False) and not stack.rollout.apart:
        key = "rollout.gpus" if rollout.gpus is not None else "rollout.colocated"
        yield key, f"the stack {stack.name} generates responses on the GPUs that train", "leave it out"


OWN_KEYS = ("gpus", "tp", "pp", "engine", "output_tokens")
"""Keys of a section that only a model on GPUs of its own has."""


def pools_are_possible(asked: AskedIterations) -> Found:
    """Models that are to have GPUs of their own and share the actor's too, on a stack that has no such, or in parts."""
    for section, name in NAMES.items():
        one = getattr(asked.scenario.values, section)
        own = [key for key in OWN_KEYS if getattr(one, key, None) is not None]
        if one.colocated and own:
            message = f"'colocated' {name} shares the GPUs of the actor, but '{own[0]}' is of GPUs of its own"
            yield f"{section}.{own[0]}", message, "remove one of them"
        elif (own or one.colocated is False) and section not in asked.stack.rollout.pools:
            key = own[0] if own else "colocated"
            message = f"the stack {asked.stack.name} keeps the {name} on the GPUs that train"
            yield f"{section}.{key}", message, "leave it out, or choose a stack that places models apart"
        ranks = (one.tp or 1) * (one.pp or 1)
        if one.gpus is not None and one.gpus % ranks:
            yield f"{section}.{'tp' if one.tp else 'pp'}", f"{one.gpus} GPUs are no multiple of tp x pp ({ranks})", None


def critic_shares_its_gpus(asked: AskedIterations) -> Found:
    """A reward model on the GPUs of a critic that has none of its own, or that has some itself."""
    values = asked.scenario.values
    if not values.reward.with_critic:
        return
    if values.critic.colocated is not False and not (values.critic.gpus or values.critic.tp or values.critic.pp):
        hint = f"{asked.setting('critic.colocated', False)} gives the critic GPUs of its own"
        yield "reward.with_critic", "'with_critic' needs a critic on GPUs of its own", hint
    for key in (*OWN_KEYS, "colocated"):
        if getattr(values.reward, key) is not None:
            yield f"reward.{key}", f"'{key}' does not go with 'with_critic'", "remove one of them"


def some_gpus_train(asked: AskedIterations) -> Found:
    """Pools of their own that together take all GPUs."""
    taken = {f"{name}.gpus": getattr(asked.scenario.values, name).gpus or 0 for name in ("rollout", *NAMES)}
    total, gpus = sum(taken.values()), asked.gpus
    if gpus is not None and total >= gpus > taken["rollout.gpus"]:
        message = f"pools of their own take {total} GPUs and leave none of the {gpus} to train"
        yield next(key for key in reversed(taken) if taken[key]), message, "'gpus' counts those of all pools"


def replicas_are_whole(asked: AskedIterations) -> Found:
    """GPUs that only write answers and hold no whole replicas."""
    gpus = asked.rollout.gpus
    for size, degree in (("tp", asked.rollout.tp), ("pp", asked.rollout.pp)):
        if degree and gpus and gpus % degree:
            yield f"rollout.{size}", f"{gpus} GPUs hold no whole replicas of {size} {degree}", None


def steps_have_answers(asked: AskedIterations) -> Found:
    """An optimizer step of more answers than an iteration has."""
    batch, answers = asked.scenario.values.train.global_batch, asked.settings.trained
    if batch is not None and batch > answers:
        message = f"'global_batch' ({batch:,}) is more than the {answers:,.0f} responses of an iteration"
        yield "train.global_batch", message, "prompts x group responses are trained on in whole steps"


RULES: tuple[Rule, ...] = (
    groups_compare,
    answers_fit_their_limit,
    lengths_are_said_once,
    calls_have_turns,
    workers_verify,
    sequences_hold_answers,
    pools_agree,
    updates_agree,
    stack_shares_so,
    pools_are_possible,
    critic_shares_its_gpus,
    some_gpus_train,
    replicas_are_whole,
    steps_have_answers,
)
"""What settings, method and stack rule out, in the order in which it is told."""


def precision_is_known(asked: AskedIterations, server: Server) -> Found:
    """A number format that the accelerator does not multiply."""
    return unknown_precision(asked, server, asked.scenario.values.precision)


def replicas_divide(asked: AskedIterations, model: ModelShape) -> Found:
    """Sizes of a replica that the model cannot be spread over."""
    tp, pp, ep = asked.rollout.tp, asked.rollout.pp, asked.rollout.ep
    yield from indivisible(model, "rollout", tp, ep)
    yield from too_many_stages(model, "rollout.pp", pp or 1, f"pp {pp}")


def encoders_write_no_answers(asked: AskedIterations, model: ModelShape) -> Found:
    """An encoder, which other jobs train."""
    if model.bidirectional:
        message = f"{model.name} is an encoder and writes no answers, so that reinforcement learning cannot train it"
        yield "model", message, f"{asked.setting('job', 'embedding')} trains it, as do sft, lora, pretrain and distill"


def engine_has_kernels(asked: AskedIterations) -> Found:
    """Sparse attention, and 4-bit floats, that the engine has no kernels for on the accelerator."""
    if asked.engine is not None:
        yield from queries_pick_keys(asked, asked.engine, "rollout")
        yield from engine_has_fp4(asked, asked.engine, asked.scheme, "rollout")


def trainer_leaves(asked: AskedIterations, server: Server) -> Found:
    """States that wait on a host whose memory the GPU shares."""
    offload = asked.rollout.offload
    if offload not in (None, "none") and not server.host_apart:
        hint = f"leave it out, or write {asked.setting('rollout.offload', 'none')}"
        yield "rollout.offload", of_one_memory(server, f"offload {offload}"), hint


ENGINE_RULES: tuple[Rule, ...] = (
    of_server(precision_is_known),
    of_server(trainer_leaves),
    of_model(encoders_write_no_answers),
    of_model(model_decodes),
    of_model(replicas_divide),
    of_model(lambda asked, model: only_experts_are_narrow(model, asked.scheme, "rollout.weights")),
    engine_has_kernels,
)
"""What model and hardware rule out of the engine that writes answers."""


class AskedModels(Asked):
    """A scenario of reinforcement learning, and which models stand beside the one that learns."""

    def __init__(self, scenario: Scenario, **models: object | None) -> None:
        super().__init__(scenario, None, None, scenario.values.gpus)
        self.models = {section: model is not None for section, model in models.items()}

    def keys_of(self, section: str) -> list[str]:
        """Keys of a section that somebody gave."""
        return sorted(key for key in self.scenario.origin if key.startswith(f"{section}."))


MISSING = {
    "critic": "only ppo trains one",
    "reward": "train.reward_model names one; rollout.verifier_s is the time of a function or a remote service",
    "reference": "train.reference 'copy' keeps one",
    "teacher": "distill-on-policy has one",
}
"""What would bring a model about that has settings and is not there."""


def models_are_there(asked: AskedModels) -> Found:
    """Settings of a model that the job does not have."""
    for section, there in asked.models.items():
        for key in asked.keys_of(section)[: 0 if there else 1]:
            yield key, f"the job {asked.scenario.values.job} has no {NAMES[section]} here", MISSING[section]


def few_words_are_sent(asked: AskedModels) -> Found:
    """A teacher on GPUs of its own that sends the logits of all words."""
    values, keys = asked.scenario.values, asked.keys_of("teacher")
    all_words = values.train.teacher_top_k is None and values.teacher.colocated is not True
    if asked.models["teacher"] and keys and all_words:
        hint = f"{asked.setting('train.teacher_top_k', 64)}, as NeMo RL and verl send them"
        yield keys[0], "a teacher on GPUs of its own cannot send the logits of all words", hint


MODEL_RULES: tuple[Callable[[AskedModels], Found], ...] = (models_are_there, few_words_are_sent)
"""What is asked of models beside the actor that are not there."""
