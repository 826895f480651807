"""What configurations of tests/data/ds_config become: for ds2deck_test.py."""
ADAMW = {"optimizer.type": "adamw", "optimizer.decay": "all", "optimizer.weight_decay": 0, "optimizer.eps": 1e-8}
OFFLOAD = "zero_optimization.offload_"

# name: (exit code, keys that are listed, what the program makes of the deck)
EXPECTED = {
    "zero2_fp16": (3, {"steps_per_print", "fp16.hysteresis", "zero_optimization.allgather_bucket_size"}, {
        **ADAMW, "batch.global": 64, "batch.micro": 4, "batch.accumulation": 0, "optimizer.clip": 1.0,
        "precision.recipe": "mixed16", "precision.storage": "fp16", "precision.loss_scale": "dynamic",
        "precision.initial_loss_scale": 4096, "precision.growth_interval": 500, "parallel.strategy": "zero",
        "parallel.zero_stage": 2, "parallel.overlap": True, "parallel.bucket": 400e6, "parallel.first_bucket": 400e6,
        "optimizer.lr": 1.5e-4, "optimizer.betas": [0.9, 0.95], "optimizer.weight_decay": 0.01,
        "optimizer.schedule": "constant", "optimizer.warmup": 0}),
    "zero3_bf16": (0, set(), {
        **ADAMW, "batch.global": 0, "batch.micro": 2, "batch.accumulation": 8, "optimizer.clip": 0.5,
        "precision.recipe": "mixed16", "precision.storage": "bf16", "precision.loss_scale": "none",
        "parallel.strategy": "zero", "parallel.zero_stage": 3, "parallel.overlap": True, "parallel.prefetch": 0,
        "parallel.bucket": 2 * 2**20, "optimizer.lr": 3e-4, "optimizer.eps": 1e-6, "optimizer.weight_decay": 0.1}),
    "zero3_offload_cpu": (3, {
        OFFLOAD + "optimizer.ratio",
        *("zero_optimization." + name for name in ("sub_group_size", "stage3_max_live_parameters", "stage3_max_reuse_distance",
                                                   "stage3_prefetch_bucket_size")),
        "activation_checkpointing.partition_activations", "activation_checkpointing.cpu_checkpointing"}, {
        **ADAMW, "batch.global": 16, "batch.accumulation": 1, "parallel.zero_stage": 3, "parallel.bucket": 10e6,
        "memory.offload_optimizer": "host", "memory.offload_param": "host",
        "parallel.prefetch": 1, "optimizer.clip": 0, "optimizer.betas": [0.9, 0.999]}),
    "zero3_nvme": (3, {
        OFFLOAD + "param.max_in_cpu", OFFLOAD + "param.buffer_size", OFFLOAD + "optimizer.buffer_count",
        OFFLOAD + "optimizer.pipeline_read", "fp16.loss_scale",
        *("aio." + name for name in ("block_size", "queue_depth", "thread_count", "single_submit", "overlap_events"))}, {
        "batch.micro": 1, "batch.accumulation": 1, "parallel.zero_stage": 3, "parallel.overlap": False,
        "memory.offload_optimizer": "file", "memory.offload_param": "file", "memory.folder": "/local_nvme",
        "precision.storage": "fp16", "precision.loss_scale": "dynamic", "precision.initial_loss_scale": 65536,
        "precision.growth_interval": 1000, "optimizer.type": "adam", "optimizer.weight_decay": 0.01}),
    "launcher_auto": (3, {
        "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping",
        "bf16.enabled", "zero_optimization.reduce_bucket_size",
        *("optimizer.params." + name for name in ("lr", "betas", "eps", "weight_decay")),
        *("scheduler.params.warmup_" + name for name in ("min_lr", "max_lr", "num_steps"))}, {
        **ADAMW, "batch.micro": 1, "batch.accumulation": 1, "precision.recipe": "fp32", "parallel.zero_stage": 2,
        "parallel.overlap": True, "parallel.bucket": 2e9, "optimizer.lr": 1e-3}),
    "zero1_three_batches": (0, set(), {
        **ADAMW, "batch.global": 96, "batch.micro": 4, "batch.accumulation": 3, "comm.expected_ranks": 8,
        "precision.recipe": "mixed18", "parallel.zero_stage": 1, "parallel.gradient_reduction": "all_reduce",
        "parallel.overlap": False, "parallel.bucket": 25 * 2**20, "optimizer.lr": 2e-3, "optimizer.schedule": "constant",
        "optimizer.warmup": 0}),
    "zero2_all_reduce": (0, set(), {
        **ADAMW, "batch.micro": 2, "batch.accumulation": 4, "precision.recipe": "mixed16", "parallel.zero_stage": 2,
        "parallel.gradient_reduction": "all_reduce", "parallel.overlap": True, "parallel.bucket": 12.5 * 2**20,
        "optimizer.clip": 1.0, "optimizer.lr": 6e-4}),
    "ddp_sgd": (0, set(), {
        "batch.global": 32, "batch.accumulation": 1, "precision.recipe": "fp32", "parallel.strategy": "ddp",
        "parallel.overlap": False, "optimizer.type": "sgd", "optimizer.lr": 0.1, "optimizer.momentum": 0.9,
        "optimizer.weight_decay": 0, "optimizer.clip": 0}),
    "zeropp": (3, {"zero_optimization.zero_" + name for name in ("hpz_partition_size", "quantized_weights",
                                                                 "quantized_gradients")}, {
        **ADAMW, "parallel.strategy": "zero", "parallel.zero_stage": 3, "parallel.bucket": 20e6, "optimizer.lr": 6e-4}),
    "mics": (0, set(), {
        **ADAMW, "parallel.strategy": "hsdp", "parallel.shard_group": 8, "parallel.bucket": 20e6, "parallel.overlap": True,
        "optimizer.weight_decay": 0.1}),
    "cosine": (3, {"scheduler.params.warmup_num_steps"}, {
        **ADAMW, "batch.micro": 1, "batch.accumulation": 1, "data.steps": 1000, "optimizer.schedule": "cosine",
        "optimizer.warmup": 50, "optimizer.final_lr_fraction": 0.1, "optimizer.weight_decay": 0.1, "optimizer.lr": 2e-3}),
    "decay_with_comments": (3, {
        "fp16.initial_scale_power", "zero_optimization.round_robin_gradients", "scheduler.type",
        "scheduler.params.warmup_num_steps", "scheduler.params.warmup_min_lr"}, {
        **ADAMW, "batch.global": 4096, "batch.micro": 64, "precision.initial_loss_scale": 2**40, "data.steps": 2000,
        "optimizer.lr": 4e-4, "optimizer.schedule": "cosine", "optimizer.final_lr_fraction": 0, "optimizer.warmup": 200}),
    "switches_off": (0, set(), {
        **ADAMW, "batch.micro": 4, "batch.accumulation": 1, "parallel.zero_stage": 3, "parallel.overlap": True,
        "parallel.bucket": 1e9, "precision.recipe": "mixed16", "precision.storage": "fp16", "optimizer.clip": 0}),
    "misspelt": (3, {
        "gradient_clipp1ng", "stage", "zero_optimization.reduce_bucketsize", "zero_optimization.overlap_com",
        "optimizer.params.weight_decy", "my_site_note"}, {
        **ADAMW, "batch.global": 8, "optimizer.clip": 0, "parallel.zero_stage": 2, "parallel.overlap": False,
        "parallel.bucket": 1e9}),
    "lamb_and_monitors": (3, {
        *("optimizer." + name for name in ("type", "params.lr", "params.weight_decay", "params.bias_correction",
                                           "params.max_coeff")),
        *("scheduler." + name for name in ("type", "params.cycle_min_lr", "params.cycle_max_lr")),
        *("flops_profiler." + name for name in ("enabled", "profile_step", "module_depth", "top_modules", "detailed")),
        *("comms_logger." + name for name in ("enabled", "verbose", "prof_all")),
        *("csv_monitor." + name for name in ("enabled", "output_path", "job_name")),
        *("curriculum_learning." + name for name in ("enabled", "curriculum_type", "schedule_config.total_curriculum_step")),
        "sparse_attention.mode", "sparse_attention.block", "tensor_parallel.autotp_size", "dump_state"}, {
        "batch.global": 128, "batch.accumulation": 2, "optimizer.type": "adamw", "optimizer.schedule": "constant",
        "parallel.strategy": "ddp"}),
}
UNUSABLE = {"contradictory_batch": "train_batch_size = 30 contradicts", "two_precisions": "more than one of fp16, bf16"}
