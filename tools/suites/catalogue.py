"""The suites, of packages that were divided before any was run: to develop with, and to judge."""

from __future__ import annotations

from tools.suites.suite import Suite

_INTERPRETED = {"TRITON_INTERPRET": "1"}
_ALL = ("--kernel", "*")  # not Triton's alone
_NUMBA = "numba-cuda's wheel, numba.cuda.tests, with the repository's testing/"
_UNIT = "triton-3.6/python/test/unit"

CPU = (
    Suite(
        "triton-interpreter",
        *("develop", "cpu", "triton-lang/triton, release/3.6.x, python/test/unit"),
        ("triton", "torch", "numpy"),
        (
            *("-m", "interpreter", "--device=cpu", "cuda", "runtime/test_launch.py"),
            *("language/test_core.py", "language/test_standard.py", "language/test_random.py"),
            *("language/test_block_pointer.py", "language/test_subprocess.py"),
            *("language/test_line_info.py", "language/test_tuple.py"),
        ),
        folder=_UNIT,
        environment=_INTERPRETED,
        sample=40,
        limit=20,
    ),
    Suite(
        "triton-compiler",
        *("develop", "cpu", "triton-lang/triton, release/3.6.x, python/test"),
        ("triton", "torch"),
        (
            *("--import-mode=importlib", "gluon/test_frontend.py"),
            *("unit/language/test_frontend.py", "unit/language/test_compile_only.py"),
            *("unit/language/test_module.py", "unit/tools/test_linear_layout.py"),
            *("unit/runtime/test_build.py", "unit/runtime/test_compilation_listener.py"),
        ),
        folder="triton-3.6/python/test",
        sample=2,
    ),
    Suite(
        "warp",
        *("develop", "cpu", "warp-lang's wheel, warp.tests"),
        ("warp-lang",),
        ("--pyargs", "warp.tests"),
        options=("--level", "machine"),
        sample=250,  # its own compiler takes 20 s for a module
    ),
    Suite(
        "tritonparse",
        *("develop", "cpu", "meta-pytorch/tritonparse, v0.5.1, tests/cpu"),
        ("tritonparse", "triton", "torch"),
        ("tests/cpu",),
        folder="tritonparse-0.5.1",
        sample=4,
    ),
    Suite(
        "numba-cuda-simulator",
        *("develop", "cpu", _NUMBA),
        ("numba-cuda", "numba"),
        ("--benchmark-disable",),
        folder="numba-cuda/testing",
        environment={"NUMBA_ENABLE_CUDASIM": "1"},
        options=("--level", "machine"),
        sample=8,
    ),
    Suite(
        "liger-kernel",
        *("judge", "cpu", "linkedin/Liger-Kernel, v0.8.2, test/transformers"),
        ("liger-kernel", "triton", "torch", "transformers"),
        (
            *("test/transformers/test_softmax.py", "test/transformers/test_relu_squared.py"),
            *("test/transformers/test_sparsemax.py", "test/transformers/test_group_norm.py"),
            *("test/transformers/test_embedding.py", "test/transformers/test_swiglu.py"),
        ),
        folder="liger",
        environment=_INTERPRETED,
        sample=6,
        limit=20,
    ),
    Suite(
        "triton-viz",
        *("judge", "cpu", "Deep-Learning-Profiling-Tools/triton-viz, v3.0, tests"),
        ("triton-viz", "triton", "torch"),
        ("tests/unit", "tests/end_to_end"),
        folder="triton-viz",
        environment=_INTERPRETED,
    ),
    Suite(
        "helion",
        *("judge", "cpu", "pytorch/helion, v1.4.0, test"),
        ("helion", "triton", "torch"),
        ("test/test_ref_eager.py", "test/test_config_api.py", "test/test_masking.py"),
        folder="helion",
        environment={"HELION_INTERPRET": "1", **_INTERPRETED},
        sample=2,
    ),
    Suite(
        "jax-pallas",
        *("judge", "cpu", "jax-ml/jax, jax-v0.10.2, tests/pallas"),
        ("jax", "jaxlib"),
        (
            *("tests/pallas/pallas_vmap_test.py", "tests/pallas/gpu_ops_test.py"),
            "tests/pallas/triton_pallas_test.py",
        ),
        folder="jax",
        environment={"JAX_PLATFORMS": "cpu"},
        options=("--level", "machine"),
        sample=10,
    ),
    Suite(
        "quack",
        *("judge", "cpu", "Dao-AILab/quack, v0.6.4, tests"),
        ("quack-kernels", "nvidia-cutlass-dsl", "torch"),
        ("tests/dsl", "tests/test_cache.py", "tests/test_autotuner.py", "tests/test_complex.py"),
        folder="quack",
        options=("--level", "machine"),
        environment={"CUTE_DSL_ARCH": "sm_90a", "QUACK_CACHE_DIR": "{scratch}/quack"},
        sample=4,
    ),
)

GPU = (
    Suite(
        "triton-gpu",
        *("develop", "gpu", "triton-lang/triton, release/3.6.x, python/test/unit"),
        ("triton", "torch"),
        ("language", "cuda", "tools"),
        folder=_UNIT,
        sample=100,
    ),
    Suite(
        "triton-runtime",
        *("develop", "gpu", "triton-lang/triton, release/3.6.x, python/test/unit"),
        ("triton", "torch"),
        ("runtime", "test_perf_warning.py", "test_knobs.py", "test_debuginfo.py"),
        folder=_UNIT,
        sample=2,
    ),
    Suite(
        "numba-cuda",
        *("develop", "gpu", _NUMBA),
        ("numba-cuda", "numba"),
        ("--benchmark-disable",),
        folder="numba-cuda/testing",
        options=_ALL,
        sample=10,
    ),
    Suite(
        "attorch",
        *("develop", "gpu", "BobMcDear/attorch, 67c2772, tests"),
        ("triton", "torch"),
        ("tests",),
        folder="attorch",
        sample=200,
    ),
    Suite(
        "flash-linear-attention",
        *("develop", "gpu", "fla-org/flash-linear-attention, v0.5.2, tests/ops"),
        ("fla-core", "triton", "torch"),
        ("tests/ops",),
        folder="fla",
        sample=40,
        limit=120,
    ),
    Suite(
        "liger-kernel-gpu",
        *("judge", "gpu", "linkedin/Liger-Kernel, v0.8.2, test/transformers"),
        ("liger-kernel", "triton", "torch", "transformers"),
        ("test/transformers",),
        folder="liger",
        options=_ALL,
        sample=40,
    ),
    Suite(
        "cupy",
        *("judge", "gpu", "cupy/cupy, v14.2.0, tests/cupy_tests"),
        ("cupy-cuda13x",),
        (
            *("-k", "not jitify"),  # without ikp, too, compiling with that never ends
            *("tests/cupy_tests/core_tests/test_raw.py", "tests/cupy_tests/cuda_tests"),
            *("tests/cupy_tests/core_tests/test_userkernel.py",),
            *("tests/cupy_tests/core_tests/test_reduction.py",),
            *("tests/cupy_tests/linalg_tests", "tests/cupy_tests/sorting_tests"),
        ),
        folder="cupy",
        options=_ALL,
        sample=20,
    ),
    Suite(
        "jax-pallas-gpu",
        *("judge", "gpu", "jax-ml/jax, jax-v0.11.0, tests/pallas"),
        ("jax", "jaxlib"),
        (
            *("tests/pallas/pallas_vmap_test.py", "tests/pallas/gpu_ops_test.py"),
            "tests/pallas/triton_pallas_test.py",
        ),
        folder="jax-0.11",
        environment={"XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
        options=_ALL,
        sample=12,
    ),
    Suite(
        "bitsandbytes",
        *("judge", "gpu", "bitsandbytes-foundation/bitsandbytes, 0.50.1, tests"),
        ("bitsandbytes", "triton", "torch"),
        ("tests/test_functional.py", "tests/test_ops.py", "tests/test_linear4bit.py"),
        folder="bnb",
        options=_ALL,
        sample=20,
    ),
)

SUITES = CPU + GPU
