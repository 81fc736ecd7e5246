"""CuPy: its ufuncs, reductions and own kernels, and what it takes of NVIDIA's libraries."""

# ruff: noqa: ARG002 - each program takes both arrays
from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from tools.fuzz_operators.array_programs import ArrayPrograms, Program, functions

_STENCIL = r"""
extern "C" __global__ void stencil(const double *x, double *y, int rows, int columns) {
    int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y;
    if (j == 0 || j >= columns - 1 || i == 0 || i >= rows - 1) return;
    double sum = 0;
    for (int a = -1; a < 2; a++)
        for (int b = -1; b < 2; b++) sum += x[(i + a) * columns + j + b] * (a * 3 + b);
    y[i * columns + j] = sum;
}
"""


class CupyPrograms(ArrayPrograms):
    """Programs of CuPy."""

    def load(self) -> Mapping[str, Program]:
        """Import CuPy; return the programs."""
        written = _Programs()
        return {name: getattr(written, name) for name in self.listed()}

    def listed(self) -> list[str]:
        """Return the programs' names."""
        return functions(_Programs)

    def array(self, values: Any) -> Any:
        """Return numpy's values on the GPU."""
        return import_module("cupy").asarray(values)

    def wait(self) -> None:
        """Wait for the GPU."""
        import_module("cupy").cuda.Device().synchronize()


class _Programs:
    """Each method is a program."""

    def __init__(self) -> None:
        self._cp = import_module("cupy")

    def reductions(self, x: Any, k: Any) -> Any:
        return [x.sum(), x.sum(0), x.max(1), x.argmin(1), x.std(0), k.sum(1), x.prod(1), k.any(0)]

    def sorts(self, x: Any, k: Any) -> Any:
        cp = self._cp
        return [cp.sort(x), cp.argsort(k, axis=0), cp.sort(x.ravel()), cp.partition(x, 40)]

    def lexsort(self, x: Any, k: Any) -> Any:
        return [self._cp.lexsort(self._cp.stack([x.ravel(), k.ravel().astype(x.dtype)]))]

    def scans(self, x: Any, k: Any) -> Any:
        return [self._cp.cumsum(x), self._cp.cumsum(x, axis=1), self._cp.cumprod(k, axis=0)]

    def ufuncs(self, x: Any, k: Any) -> Any:
        cp = self._cp
        made = [cp.sin(x), cp.exp(x), cp.arctan2(x, k), cp.floor_divide(x, k + 1), cp.hypot(x, x)]
        return [*made, *cp.modf(x), cp.left_shift(k, 3), cp.gcd(k, k.T[:1, :1]), x[:, ::3] * 2]

    def powers(self, x: Any, k: Any) -> Any:
        return [abs(x) ** 1.7, x**3, k**2, self._cp.divmod(k, 7)[0], self._cp.logaddexp(x, x)]

    def fused(self, x: Any, k: Any) -> Any:
        return self._cp.fuse(lambda a, b: a * b + self._cp.sqrt(abs(a)) - b)(x, k)

    def raw_stencil(self, x: Any, k: Any) -> Any:
        cp = self._cp
        made = cp.zeros(x.shape)
        rows, columns = x.shape
        kernel = cp.RawKernel(_STENCIL, "stencil")
        kernel((-(-columns // 128), rows), (128,), (x.astype(float), made, rows, columns))
        return made

    def elementwise_kernel(self, x: Any, k: Any) -> Any:
        text = "z = 0; for (int at = 0; at < k; at++) z += x / (at + 1);"
        return self._cp.ElementwiseKernel("T x, int32 k", "T z", text, "looped")(x, k)

    def reduction_kernel(self, x: Any, k: Any) -> Any:
        made = self._cp.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "norms")
        return [made(x, axis=1), made(x), made(x, axis=0)]

    def jit_kernel(self, x: Any, k: Any) -> Any:
        jit = import_module("cupyx.jit")

        @jit.rawkernel()  # type: ignore[untyped-decorator,unused-ignore]
        def halved(values: Any, made: Any, size: Any) -> None:
            at = jit.blockIdx.x * jit.blockDim.x + jit.threadIdx.x
            step = jit.gridDim.x * jit.blockDim.x
            for each in range(at, size, step):
                made[each] = values[each] / 2

        flat, made = x.ravel(), self._cp.empty(x.size, x.dtype)
        halved((40,), (128,), (flat, made, self._cp.uint32(x.size)))
        return made

    def counts(self, x: Any, k: Any) -> Any:
        cp = self._cp
        return [cp.bincount(k.ravel()), cp.histogram(x, 50)[0], cp.digitize(x, cp.arange(5.0))]

    def unique(self, x: Any, k: Any) -> Any:
        return list(self._cp.unique(k, return_index=True, return_counts=True))

    def selections(self, x: Any, k: Any) -> Any:
        cp = self._cp
        chosen = [x[x > 0], cp.nonzero(k > 50)[0], cp.where(k > 3, x, -x), cp.take(x, k)]
        return [*chosen, cp.compress(k[0] > 50, x, axis=1), cp.choose(k % 2, [x, -x])]

    def statistics(self, x: Any, k: Any) -> Any:
        cp = self._cp
        return [cp.median(x, axis=1), cp.percentile(x, 30), cp.corrcoef(x[:20]), cp.nanvar(x)]

    def products(self, x: Any, k: Any) -> Any:
        cp = self._cp
        return [x @ x.T, cp.einsum("ij,kj->ik", x, x), k @ k.T, cp.kron(x[:20, :20], x[:9, :9])]

    def random_numbers(self, x: Any, k: Any) -> Any:
        made = self._cp.random.RandomState(3)
        numbers = [made.uniform(size=9999), made.normal(size=9999), made.poisson(3.0, 9999)]
        return [*numbers, made.gamma(2.0, size=9999), made.permutation(9999)]

    def random_generator(self, x: Any, k: Any) -> Any:
        made = self._cp.random.default_rng(3)
        return [made.random(9999), made.standard_normal(9999), made.binomial(20, 0.3, 9999)]

    def fourier(self, x: Any, k: Any) -> Any:
        fft = self._cp.fft
        return [fft.fft(x), fft.rfft2(x), fft.ifft(x, axis=0), fft.irfft(fft.rfft(x[:, :1030]))]

    def decompositions(self, x: Any, k: Any) -> Any:
        linalg, square = self._cp.linalg, x[:200, :200]
        positive = square @ square.T + 200 * self._cp.eye(200, dtype=x.dtype)
        made = [linalg.cholesky(positive), *linalg.qr(square), linalg.eigvalsh(positive)]
        return [*made, linalg.svd(square, compute_uv=False), linalg.inv(positive)]

    def solve(self, x: Any, k: Any) -> Any:
        return self._cp.linalg.solve(
            x[:300, :300] + 300 * self._cp.eye(300, dtype=x.dtype), x[:300]
        )

    def sparse_products(self, x: Any, k: Any) -> Any:
        sparse = import_module("cupyx.scipy.sparse")
        made = sparse.csr_matrix(self._cp.where(k > 90, x, 0))
        product = made @ made.T
        return [made @ x[0, : made.shape[1]], made @ x.T, product.toarray(), made.tocsc().data]

    def sparse_solve(self, x: Any, k: Any) -> Any:
        sparse, linalg = (import_module(f"cupyx.scipy.sparse{each}") for each in ("", ".linalg"))
        main = self._cp.full(500, 4.0, x.dtype)
        made = sparse.diags([main, -main[1:] / 4, -main[1:] / 4], [0, 1, -1], format="csr")
        return [linalg.spsolve(made, x[:500, 0]), linalg.cg(made, x[:500, 1], maxiter=20)[0]]

    def sparse_conversions(self, x: Any, k: Any) -> Any:
        sparse = import_module("cupyx.scipy.sparse")
        made = sparse.coo_matrix((x.ravel()[:5000], (k.ravel()[:5000], k.ravel()[5000:10000])))
        return [made.tocsr().toarray(), made.tocsr().sum(axis=0), (made.tocsr() > 0).toarray()]

    def image_filters(self, x: Any, k: Any) -> Any:
        image = import_module("cupyx.scipy.ndimage")
        made = [image.gaussian_filter(x, 2), image.median_filter(x, 3), image.sobel(x)]
        return [*made, image.convolve(x, x[:5, :5]), image.uniform_filter(x, 5)]

    def image_moves(self, x: Any, k: Any) -> Any:
        image = import_module("cupyx.scipy.ndimage")
        return [
            image.rotate(x, 30),
            image.zoom(x, 1.5),
            image.shift(x, 2.5),
            image.spline_filter(x),
        ]

    def image_labels(self, x: Any, k: Any) -> Any:
        image = import_module("cupyx.scipy.ndimage")
        labels, _ = image.label(k > 60)
        made = [labels, image.binary_dilation(k > 60, iterations=3), image.grey_erosion(x, 3)]
        return [*made, image.distance_transform_edt(k > 3)]

    def signals(self, x: Any, k: Any) -> Any:
        signal = import_module("cupyx.scipy.signal")
        made = [signal.convolve2d(x, x[:5, :5]), signal.fftconvolve(x[0], x[1])]
        return [*made, signal.lfilter([0.1, 0.2], [1.0, -0.5], x), signal.medfilt2d(x, 3)]

    def special_functions(self, x: Any, k: Any) -> Any:
        special = import_module("cupyx.scipy.special")
        made = [
            special.gammaln(abs(x)),
            special.erfinv(x / 9),
            special.j0(x),
            special.zeta(k + 2, 1),
        ]
        return [*made, special.betainc(2.0, 3.0, abs(self._cp.sin(x))), special.softmax(x, axis=1)]

    def scattered(self, x: Any, k: Any) -> Any:
        cp = self._cp
        made, bits = cp.zeros(100, cp.int32), cp.zeros(100, cp.float32)
        cp.add.at(made, k.ravel(), 1)
        cp.maximum.at(bits, k.ravel(), x.ravel().astype(cp.float32))
        return [made, bits]

    def interpolated(self, x: Any, k: Any) -> Any:
        interpolate = import_module("cupyx.scipy.interpolate")
        places = self._cp.arange(100.0)
        made = interpolate.CubicSpline(places, x[0, :100].astype(float))(k.ravel()[:5000] + 0.3)
        return [made, self._cp.interp(x[0], places, places * 2)]

    def distances(self, x: Any, k: Any) -> Any:
        return import_module("cupyx.scipy.spatial.distance").cdist(x[:200, :30], x[200:350, :30])
