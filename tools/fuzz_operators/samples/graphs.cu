// A CUDA graph captured from a stream, replayed, and updated.
#include "sample.h"

__global__ void stepped(uint32_t *x, int n, uint32_t factor) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = x[i] * factor + i;
}

RUN {
    Words x(COUNT);
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    TRY(cudaStreamCreate(&stream));
    TRY(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int k = 1; k < 6; k++) stepped<<<COUNT / 128, 128, 0, stream>>>(x.data, COUNT, k);
    TRY(cudaStreamEndCapture(stream, &graph));
    TRY(cudaGraphInstantiate(&executable, graph, 0));
    for (int k = 0; k < 4; k++) TRY(cudaGraphLaunch(executable, stream));
    TRY(cudaStreamSynchronize(stream));
    TRY(cudaGraphExecDestroy(executable));
    TRY(cudaGraphDestroy(graph));
    TRY(cudaStreamDestroy(stream));
    return x.read(out);
}
