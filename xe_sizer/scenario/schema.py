"""The scenario file: every key, its unit and its range. All keys but `model` may be left out."""

from typing import Annotated, Literal

from msgspec import Meta, field

from xe_sizer.graph.casts import Fp8Recipe
from xe_sizer.graph.losses import loss_names
from xe_sizer.graph.operators import ContextKind
from xe_sizer.graph.schedules import PipelineSchedule
from xe_sizer.graph.selective import RecomputeModule
from xe_sizer.laws.precision import loaded_in, other_precisions, trained_in
from xe_sizer.profiles.fields import named, or_else
from xe_sizer.profiles.model_schema import InlineModel
from xe_sizer.scenario.jobs import adapter_aliases, adapter_names, job_aliases, job_names
from xe_sizer.scenario.limits_section import LimitsSection
from xe_sizer.scenario.rollout_section import RolloutSection
from xe_sizer.scenario.serve_section import ServeSection
from xe_sizer.scenario.values import (
    Count,
    Currency,
    Degree,
    DropoutRate,
    FailureRate,
    Fraction,
    ImageSize,
    Name,
    NotNegative,
    PlainName,
    Positive,
    Section,
    Tokens,
)

Job = Annotated[str, named(job_names, job_aliases)]
Adapter = Annotated[str, named(adapter_names, adapter_aliases)]
Precision = Annotated[str, named(trained_in, other_precisions)]
Attention = Annotated[
    Literal["flash", "sdpa", "eager"],
    or_else(flashattention="flash", flashattention2="flash", flashattn="flash", flashattn2="flash", fa2="flash"),
]
Loss = Annotated[str, named(loss_names)]
CpKind = Annotated[ContextKind, or_else(p2p="ring", allgather="all-gather", a2a="ulysses", a2ap2p="hybrid")]
Padding = Annotated[
    Literal["packed", "longest-in-micro-batch", "longest-in-global-batch", "to-seq-len", "grouped-by-length", "none"],
    or_else(packing="packed", samplepacking="packed", maxlength="to-seq-len"),
]
Recompute = Annotated[Literal["none", "selective", "full"], or_else(true="full", false="none")]
Offload = Annotated[
    Literal["none", "optimizer", "params", "activations", "optimizer+activations", "params+activations"],
    or_else(
        false="none",
        optimizerstates="optimizer",
        parameters="params",
        param="params",
        optimizerparams="params",
        paramsoptimizer="params",
        activation="activations",
        activationsoptimizer="optimizer+activations",
        activationsparams="params+activations",
        optimizerparamsactivations="params+activations",
    ),
]
Zero = Annotated[
    Literal[0, 1, 2, 3],
    or_else(
        ddp=0, noshard=0, zero0=0, zero1=1, stage1=1, zero2=2, stage2=2, shardgradop=2,
        zero3=3, stage3=3, fsdp=3, fsdp2=3, fullshard=3,
    ),
]  # fmt: skip
Schedule = Annotated[
    PipelineSchedule,
    or_else(
        interleaved1f1b="1f1b-interleaved", interleaved="1f1b-interleaved", onefoneb="1f1b", afab="gpipe",
        allforwardallbackward="gpipe", zb1p="zb-h1", zbh1="zb-h1", zb2p="zb-h2", zbh2="zb-h2", zbv="zb-v", zbb="zb-v",
        zbvzerobubble="zb-v", vzb="zb-v", vhalf="v-half", vmin="v-min",
    ),
]  # fmt: skip
Fp8 = Annotated[
    Fp8Recipe,
    or_else(
        currentscaling="tensorwise", current="tensorwise", pertensor="tensorwise", float8currentscaling="tensorwise",
        axiswise="rowwise", perrow="rowwise", block="blockwise", subchannel="blockwise", float8blockscaling="blockwise",
        mx="mxfp8", mxfp8blockscaling="mxfp8", delayedscaling="delayed",
    ),
]  # fmt: skip
FrozenPart = Annotated[
    Literal["vision", "projector", "language", "none"],
    or_else(
        vit="vision", visiontower="vision", visionencoder="vision", visionmodel="vision", aligner="projector",
        merger="projector", connector="projector", multimodalprojector="projector", llm="language", lm="language",
        languagemodel="language",
    ),
]  # fmt: skip
Reference = Annotated[
    Literal["none", "copy", "precomputed", "adapters-off"],
    or_else(false="none", precompute="precomputed", precomputereflogprobs="precomputed", disableadapter="adapters-off"),
]
Task = Annotated[
    Literal["causal-lm", "seq-cls", "regression", "reranker", "generative-reranker"],
    or_else(
        causallm="causal-lm", textgeneration="causal-lm", seqcls="seq-cls", sequenceclassification="seq-cls",
        textclassification="seq-cls", classification="seq-cls", crossencoder="reranker",
    ),
]  # fmt: skip
Objective = Literal["servers", "gpus", "cost", "time", "energy"]


class Histogram(Section, frozen=True):
    """Token lengths of a data set, counted."""

    lengths: Annotated[tuple[Tokens, ...], Meta(min_length=1, description="Tokens of a sample, one per bin")]
    counts: Annotated[tuple[NotNegative, ...], Meta(min_length=1, description="Samples in each bin")]


class DataSection(Section, frozen=True):
    """What is trained on: a data set profile, a file of samples, a histogram, or statistics of the token lengths."""

    profile: Annotated[Name | None, Meta(description="Data set profile, or samples: train.jsonl")] = None
    file: Annotated[Name | None, Meta(description="Samples: JSON Lines, JSON or Parquet; their tokens are counted")] = (
        None
    )
    tokenizer: Annotated[Name | None, Meta(description="Counts the samples: tokenizer.json or its folder")] = None
    samples: Annotated[Count | None, Meta(description="Samples in the data set")] = None
    mean_tokens: Annotated[Positive | None, Meta(description="Mean tokens per sample, without padding")] = None
    chosen_tokens: Annotated[
        Positive | None, Meta(description="Mean tokens of a prompt with its chosen answer, where samples are pairs")
    ] = None
    rejected_tokens: Annotated[
        Positive | None, Meta(description="Mean tokens of a prompt with its rejected answer, where samples are pairs")
    ] = None
    min_tokens: Annotated[Tokens | None, Meta(description="Tokens of the shortest sample")] = None
    max_tokens: Annotated[Tokens | None, Meta(description="Tokens of the longest sample")] = None
    tokens: Annotated[Positive | None, Meta(description="Tokens of the whole data set, without padding")] = None
    histogram: Annotated[Histogram | None, Meta(description="Token lengths, counted")] = None
    images: Annotated[
        Annotated[int, Meta(ge=0, le=10_000)] | None,
        Meta(description="Images of a sample, whose tokens come beside those of its text; default: none, no encoder"),
    ] = None
    image_size: Annotated[ImageSize | None, Meta(description="Width and height of its images, e.g. 1024x768")] = None


class TrainSection(Section, frozen=True):
    """How long to train and how batches are made."""

    steps: Annotated[Count | None, Meta(description="Optimizer steps; instead of epochs")] = None
    epochs: Annotated[Positive | None, Meta(description="Passes over the data set; instead of steps")] = None
    global_batch: Annotated[Degree | None, Meta(description="Sequences per optimizer step, all GPUs")] = None
    micro_batch: Annotated[Degree | None, Meta(description="Sequences per forward pass on each GPU")] = None
    grad_accum: Annotated[
        Degree | None, Meta(description="Micro-batches of each GPU per optimizer step (gradient accumulation)")
    ] = None
    seq_len: Annotated[Tokens | None, Meta(description="Longest sequence in tokens; longer samples are cut")] = None
    target_len: Annotated[
        Tokens | None,
        Meta(
            description="Tokens of the decoder's sequences; default: as T5 or BART pre-train, else a quarter of seq_len"
        ),
    ] = None
    padding: Annotated[Padding | None, Meta(description="What short samples are padded to")] = None
    task: Annotated[
        Task | None,
        Meta(description="What is read from the last layer; default: what the job reads, logits of the vocabulary"),
    ] = None
    weights_dtype: Annotated[
        Annotated[str, named(loaded_in, other_precisions)] | None,
        Meta(description="Number format that the weights are loaded and kept in"),
    ] = None
    backend: Annotated[
        PlainName | None,
        Meta(description="What shares states out, where the stack has several: deepspeed, fsdp"),
    ] = None
    fp8_recipe: Annotated[
        Fp8 | None, Meta(description="How operands in 8 bit are scaled, e.g. mxfp8; default: the stack's")
    ] = None
    fused_kernels: Annotated[
        Annotated[tuple[PlainName, ...], Meta(min_length=1)] | None,
        Meta(description="Fused kernels in place of the stack's own, e.g. norm, rotary, activation, loss, liger, none"),
    ] = None
    quantiser: Annotated[
        Name | None, Meta(description="Library that holds frozen weights in few bits, e.g. bitsandbytes, or a file")
    ] = None
    bits: Annotated[
        Annotated[int, Meta(ge=1, le=16)] | None, Meta(description="Bits of a frozen weight, where it is quantised")
    ] = None
    trainable_layers: Annotated[
        Degree | None,
        Meta(description="Layers at the end of the model that learn, with the rest, embedding and head frozen"),
    ] = None
    experts_per_token: Annotated[
        Degree | None, Meta(description="Experts that each token goes through, if not as many as the model has")
    ] = None
    optimizer_rank: Annotated[
        Degree | None, Meta(description="Rank to which GaLore and APOLLO project gradients; default: the optimizer's")
    ] = None
    reference: Annotated[
        Reference | None,
        Meta(description="Where a reference's log-probabilities come from; default: a copy, or adapters off"),
    ] = None
    teacher_model: Annotated[
        Name | None, Meta(description="Model that teaches the student: a profile name or path, or a config.json")
    ] = None
    dropout: Annotated[
        DropoutRate | None, Meta(description="Share that dropout zeroes where the model has it; default: the stack's")
    ] = None
    reduce_every_micro_batch: Annotated[
        bool | None, Meta(description="Reduce gradients in every micro-batch, not once per step (ZeRO 2 and 3)")
    ] = None
    empty_cache_steps: Annotated[
        Count | None,
        Meta(description="Steps after which the allocator gives free memory back; default: never"),
    ] = None
    freeze: Annotated[
        Annotated[tuple[FrozenPart, ...], Meta(min_length=1)] | None,
        Meta(description="Parts of a model that sees which do not learn: vision, projector, language, or none"),
    ] = None
    checkpoint_every: Annotated[
        Count | None, Meta(description="Steps from one checkpoint to the next; the last step is saved too")
    ] = None
    async_checkpoint: Annotated[
        bool | None, Meta(description="Write checkpoints from host memory while training goes on")
    ] = None
    batch_ramp_up: Annotated[
        tuple[Degree, Degree, Count] | None,
        Meta(description="First global batch, what it grows by, and sequences until it is whole, e.g. 32,32,65536"),
    ] = None
    evaluate_every: Annotated[Count | None, Meta(description="Steps from one evaluation to the next")] = None
    evaluate_samples: Annotated[
        Count | None,
        Meta(description="Samples of one evaluation; default: 5 % of the data set, at most 100 global batches"),
    ] = None
    critic_model: Annotated[
        Name | None, Meta(description="Model that rates every token in PPO; default: the model itself")
    ] = None
    reward_model: Annotated[
        Name | None, Meta(description="Model that rates answers; default for ppo: the model itself; none: a verifier")
    ] = None
    failures_per_gpu_day: Annotated[
        FailureRate | None,
        Meta(description="Failures that stop the whole job, per GPU and day, e.g. 0.0005; default: none"),
    ] = None


class StorageSection(Section, frozen=True):
    """Where checkpoints go."""

    write_gb_per_s: Annotated[
        Positive | None, Meta(description="GB/s that storage takes from all nodes together; default: 2 for each node")
    ] = None


class LayoutSection(Section, frozen=True):
    """How the model is spread over GPUs; what is left out is chosen."""

    tp: Annotated[Degree | None, Meta(description="Tensor parallel GPUs")] = None
    pp: Annotated[Degree | None, Meta(description="Pipeline stages")] = None
    vpp: Annotated[Degree | None, Meta(description="Model chunks per pipeline stage (interleaving)")] = None
    cp: Annotated[Degree | None, Meta(description="Context parallel GPUs")] = None
    cp_kind: Annotated[CpKind | None, Meta(description="What context parallel GPUs exchange; default: the stack's")] = (
        None
    )
    ep: Annotated[Degree | None, Meta(description="Expert parallel GPUs")] = None
    expert_tp: Annotated[
        Degree | None,
        Meta(description="GPUs that split an expert; default: tp where ep allows"),
    ] = None
    dp: Annotated[
        Degree | None, Meta(description="Data parallel replicas; in serving: ranks that share only the experts")
    ] = None
    zero: Annotated[Zero | None, Meta(description="ZeRO stage; 3 is FSDP")] = None
    zero_group: Annotated[
        Degree | None, Meta(description="Data parallel ranks that share one copy of sharded states; default: all")
    ] = None
    schedule: Annotated[
        Schedule | None,
        Meta(description="Order of a pipeline's passes; default: 1f1b, interleaved where vpp is above 1"),
    ] = None
    uneven_stages: Annotated[bool | None, Meta(description="Let stages differ by a layer; the fullest decides")] = None
    stages: Annotated[
        Annotated[tuple[Annotated[int, Meta(ge=0, le=65_536)], ...], Meta(min_length=2)] | None,
        Meta(description="Layers of every pipeline stage, e.g. 7,8,8,7"),
    ] = None
    first_stage_layers: Annotated[
        Degree | None, Meta(description="Layers of the first pipeline stage; the others share the rest")
    ] = None
    last_stage_layers: Annotated[
        Degree | None, Meta(description="Layers of the last pipeline stage; the others share the rest")
    ] = None
    account_for_embedding: Annotated[
        bool | None, Meta(description="The embedding takes a layer's place on the first pipeline stage")
    ] = None
    account_for_loss: Annotated[
        bool | None, Meta(description="Head and loss take a layer's place on the last pipeline stage")
    ] = None
    sequence_parallel: Annotated[bool | None, Meta(description="Split norms and dropout over tp")] = None
    recompute: Annotated[Recompute | None, Meta(description="Activations recomputed in the backward pass")] = None
    recompute_modules: Annotated[
        Annotated[tuple[RecomputeModule, ...], Meta(min_length=1)] | None,
        Meta(description="Modules that selective recomputation runs again, e.g. moe, layernorm"),
    ] = None
    recompute_layers: Annotated[
        Annotated[int, Meta(ge=1, le=65_536)] | None,
        Meta(description="Layers of a stage that full recomputation runs again"),
    ] = None
    offload: Annotated[Offload | None, Meta(description="What host memory keeps; weights take the optimizer along")] = (
        None
    )
    bucket_gib: Annotated[
        Positive | None, Meta(description="Buffer in which data-parallel ranks reduce gradients; default: the stack's")
    ] = None
    prefetch_elements: Annotated[
        NotNegative | None, Meta(description="Elements of weights that ZeRO 3 gathers ahead; DeepSpeed's own: 5e7")
    ] = None
    live_elements: Annotated[
        NotNegative | None,
        Meta(description="Gathered elements beyond which ZeRO 3 gathers nothing ahead; DeepSpeed's own: 1e9"),
    ] = None
    reuse_elements: Annotated[
        NotNegative | None,
        Meta(description="Elements within which a weight that is needed again stays gathered; DeepSpeed's own: 1e9"),
    ] = None
    persistent_elements: Annotated[
        NotNegative | None,
        Meta(description="Elements of the largest tensor that ZeRO 3 does not shard; DeepSpeed's own: 1e5"),
    ] = None
    offload_layers: Annotated[
        Degree | None, Meta(description="Layers of a stage whose activations are offloaded; default: all")
    ] = None
    offload_fraction: Annotated[
        Annotated[float, Meta(gt=0, le=1)] | None,
        Meta(description="Share of the optimizer that an offload keeps in host memory; default: all"),
    ] = None


class LoraSection(Section, frozen=True):
    """Adapters of the jobs that have them."""

    rank: Annotated[Annotated[int, Meta(ge=1, le=65_536)] | None, Meta(description="Rank of the adapters")] = None
    targets: Annotated[
        Annotated[tuple[PlainName, ...], Meta(min_length=1)] | None,
        Meta(description="Modules with adapters, e.g. qkv"),
    ] = None
    alpha: Annotated[
        Positive | None,
        Meta(description="Scale of the adapters times their rank; changes neither memory nor time: for export alone"),
    ] = None
    dropout: Annotated[DropoutRate | None, Meta(description="Share of an adapter's input that dropout zeroes")] = None
    block_size: Annotated[
        Annotated[int, Meta(ge=1, le=65_536)] | None,
        Meta(description="Size of the blocks of adapters whose matrices are cut into such"),
    ] = None
    frequencies: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000_000)] | None,
        Meta(description="Coefficients that learn of a weight's Fourier or wavelet transform"),
    ] = None
    dora: Annotated[bool | None, Meta(description="Adapters with magnitudes apart from directions (DoRA)")] = None
    modules_to_save: Annotated[
        Annotated[tuple[PlainName, ...], Meta(min_length=1)] | None,
        Meta(description="Modules that learn beside the adapters: embed_tokens, lm_head"),
    ] = None


class PTuningSection(Section, frozen=True):
    """The prompt encoder of prompt tuning."""

    virtual_tokens: Annotated[Degree | None, Meta(description="Virtual tokens before each sample")] = None
    encoder_hidden: Annotated[Degree | None, Meta(description="Hidden size of the prompt encoder")] = None


class EmbeddingSection(Section, frozen=True):
    """What embedding models compare while they learn."""

    hard_negatives: Annotated[
        Annotated[int, Meta(ge=0, le=1024)] | None, Meta(description="Hard negatives of each query; default: none")
    ] = None
    across_gpus: Annotated[bool | None, Meta(description="Compare a query with the passages of all GPUs")] = None
    cached: Annotated[
        bool | None, Meta(description="Cached gradients: compare the passages of all micro-batches of a step")
    ] = None


class CostSection(Section, frozen=True):
    """What a GPU costs."""

    price_per_gpu_hour: Annotated[
        NotNegative | dict[str, NotNegative] | None,
        Meta(description="Price of one GPU for one hour; in a file also a price for each name of a GPU or server"),
    ] = None
    currency: Annotated[Currency | None, Meta(description="Currency of prices, e.g. USD")] = None


class EfficiencySection(Section, frozen=True):
    """Fixed fractions of the peaks instead of the operator laws."""

    flops: Annotated[Fraction | None, Meta(description="Fraction of the peak FLOP/s, above 0 to 1")] = None
    memory: Annotated[Fraction | None, Meta(description="Fraction of the memory bandwidth, above 0 to 1")] = None
    ideal: Annotated[bool | None, Meta(description="Both fractions are 1: the lower bound of time")] = None


class ScenarioFile(Section, frozen=True):
    """One question: a model, a job, its data, and the hardware or the limits."""

    model: Annotated[
        Name | InlineModel,
        Meta(description="Model: a profile name or path, or a Hugging Face config.json; in a file also its shape"),
    ]
    server: Annotated[Name | None, Meta(description="Server profile; instead of gpu")] = None
    gpu: Annotated[Name | None, Meta(description="Accelerator profile; instead of server")] = None
    gpus: Annotated[Degree | None, Meta(description="Number of GPUs; searched for if omitted")] = None
    nodes: Annotated[Degree | None, Meta(description="Number of servers")] = None
    host_memory_gib: Annotated[Positive | None, Meta(description="Host memory of a node in GiB, for offloading")] = None
    job: Annotated[Job | None, Meta(description="Job: a training method; inference is sized by serve")] = None
    adapter: Annotated[
        Adapter | None, Meta(description="What learns beside frozen weights, e.g. lora; none: all weights do")
    ] = None
    stack: Annotated[Name | None, Meta(description="Training framework, e.g. nemo, or the path of a stack file")] = None
    precision: Annotated[Precision | None, Meta(description="Number format of the matrix products")] = None
    optimizer: Annotated[Name | None, Meta(description="Optimizer, e.g. adamw, or the path of an optimizer file")] = (
        None
    )
    attention: Annotated[Attention | None, Meta(description="Attention kernel")] = None
    loss: Annotated[Loss | None, Meta(description="Cross-entropy kernel; fused never holds float32 logits")] = None
    objective: Annotated[
        Objective | None, Meta(description="What plan calls the best; servers where there is a deadline, else cost")
    ] = None
    partial_servers: Annotated[
        bool | None, Meta(description="Also try numbers of GPUs that leave part of a server unused")
    ] = None
    data: DataSection = field(default_factory=DataSection)
    train: TrainSection = field(default_factory=TrainSection)
    storage: StorageSection = field(default_factory=StorageSection)
    layout: LayoutSection = field(default_factory=LayoutSection)
    lora: LoraSection = field(default_factory=LoraSection)
    p_tuning: PTuningSection = field(default_factory=PTuningSection)
    limits: LimitsSection = field(default_factory=LimitsSection)
    cost: CostSection = field(default_factory=CostSection)
    efficiency: EfficiencySection = field(default_factory=EfficiencySection)
    rollout: RolloutSection = field(default_factory=RolloutSection)
    embedding: EmbeddingSection = field(default_factory=EmbeddingSection)
    serve: ServeSection = field(default_factory=ServeSection)
