"""``KINDS``: the kinds of extra instructions that have a finding, and the words of each.

Kinds are those of ``ikp.inspection._extra``: instructions that serve no result, or that fewer
could do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

_PART: Final = 0.1
"""Part of a range's instructions from which on extra ones are its cause."""


@dataclass(frozen=True, slots=True)
class InstructionKind:
    """A kind of extra work: the id of its finding, and its words."""

    name: str
    title: str  # with {line}, {each} and {share}
    without: str
    because: str
    refuted: str
    suggestion: str
    gone: float = 1.0  # part of the counted instructions that the change saves
    least: float = _PART
    rarest: float = 0.0  # part of all instructions below which they are none, for all their time
    of: str = ""  # the units that take the time, by how their names begin; "": all
    fewest: float = 0.0  # instructions for each of these that no change saves
    most: float = math.inf  # instructions for each thing that these are for: of more, it is more
    with_loads: bool = False  # whether loads of one address by all lanes go with them
    by_issue: bool = False  # whether they take no more time than their part of the issue slots
    times: float = 1.0  # as many others that these instructions hold up, beside themselves


_RARE: Final = 0.02
"""Part from which on checks are the cause: of some 300 kernels, four have any, and all were."""
_ENDS_A_BLOCK: Final = 5.0
"""A check ends a block of code: a compiler makes no load ahead of it, and unrolls no loop."""
_ALL_OF_IT: Final = 3.0
"""Loads, addresses and conditions come with arithmetic that all lanes do alike."""
_WITH_THE_CHECK: Final = 2.0
"""Such instructions wait for each other, and for the check or the loads that they begin with."""
_OF_A_FUNCTION: Final = 12.0
"""Instructions that a division or a root takes: of more for each, most are plain arithmetic, which
costs little where it is repeated."""
KINDS: Final = {
    "unfused": InstructionKind(
        "unfused-sums",
        "{line} multiplies and adds in two instructions: {share} of all are sums of a product that "
        "nothing else uses, where one multiply-add makes both",
        "with multiply-adds",
        "additions of a product that no other instruction reads",
        "results must be rounded between product and sum",
        "let the compiler fuse: no -fmad=false, --fmad=false or __fmul_rn and __fadd_rn; in Triton "
        "enable_fp_fusion=True, or tl.fma(a, b, c)",
    ),
    "scaled": InstructionKind(
        "scaled-operands",
        "{line} multiplies the operands of products by a factor that no iteration changes: with "
        "conversions for it {share} of all instructions",
        "with the factor outside of the loop",
        "multiplications of loaded operands by a number from outside of the loop",
        "rounding differs too much with the factor on the sums",
        "multiply the sums by the factor once, behind the loop, or the operand that stays; then "
        "operands go to the products as they are loaded",
        least=0.05,
    ),
    "ones": InstructionKind(
        "products-with-ones",
        "{line} multiplies by a matrix of ones to sum up: products of tensor cores that additions "
        "make as well",
        "with sums by additions",
        "products one of whose operands is set to ones",
        "tensor cores are idle, and additions take longer",
        "sum with tl.sum (additions and shuffles), or take the sum from a product that is made "
        "anyway, by a column of ones in its operand",
        least=0.0,
        of="tensor",
    ),
    "checks": InstructionKind(
        "checks",
        "{line} checks its numbers as it goes: jumps to a failed assertion or a print, with what "
        "only these need, are {share} of all instructions",
        "without the checks",
        "jumps to calls of __assertfail or vprintf, and instructions whose results nothing else "
        "reads",
        "the checks are needed in production",
        "compile without assertions (-DNDEBUG; TRITON_DEBUG unset, debug=False), and without "
        "printf; check once, ahead of the loop, or in a kernel of its own",
        least=_RARE,
        times=_ENDS_A_BLOCK,
    ),
    "random": InstructionKind(
        "unused-random-numbers",
        "{line} makes random numbers of which most are thrown away: {each} instructions for each "
        "that is used, {share} of all, where Philox makes four at a time",
        "with all four words of each evaluation used",
        "the rounds of Philox, and how many of their results other instructions read",
        "elements that share an evaluation can't be together",
        "use all four words: tl.rand4x or tl.randint4x for four blocks of elements, curand4 or "
        "curand_uniform4 in CUDA C++; or fewer rounds (n_rounds=)",
        gone=0.7,
    ),
    "promoted": InstructionKind(
        "promoted-sums",
        "{line} adds what tensor cores have summed up to another sum in registers, again and "
        "again: {share} of all instructions",
        "with sums that tensor cores keep",
        "additions, in a loop, of what a product has just made to a sum of all iterations",
        "the sums of tensor cores are not exact enough for this K",
        "let products add to their own sum over the loop: tl.dot(a, b, acc) without "
        "max_num_imprecise_acc (or a larger one), fast accumulation in CUTLASS and cuBLASLt",
        least=0.2,
    ),
    "unpacked": InstructionKind(
        "unpacked-numbers",
        "{line} takes numbers apart bit by bit: {each} integer instructions for each number, "
        "{share} of all instructions",
        "with conversions of the hardware",
        "integer instructions between a load and the arithmetic that takes their result as a "
        "number",
        "no instruction converts this format",
        "convert by the hardware's instructions: .to(tl.float8e4nv, bitcast=True).to(tl.float16), "
        "__half2float, __nv_cvt_fp8x2_to_halfraw2; __dp4a or tensor cores for bytes; a table of "
        "few entries, or one PRMT for several numbers, for other formats",
        gone=0.9,
        least=0.2,
        fewest=4.5,  # a shift, a mask, a conversion and an offset, of numbers of a few bits
        most=40.0,
    ),
    "converted": InstructionKind(
        "unpacked-numbers",
        "{line} takes small integers out of words and converts them one by one: {each} "
        "instructions for each number, {share} of all instructions",
        "with two numbers at once, and no conversion",
        "conversions of integers to 16-bit floats, of a few bits of loaded words, and what takes "
        "them out",
        "the numbers have more than eight bits",
        "put the bits into the mantissa of 16-bit floats, two at a time: (x & 0x000f000f) | "
        "0x64006400 in one LOP3, and a subtraction of 1024 (or a multiply-add) for both",
        gone=0.75,
        least=0.15,
    ),
    "private": InstructionKind(
        "private-staging",
        "{line} takes numbers through shared memory, and each thread loads only what it stored "
        "itself: {share} of all instructions",
        "with these numbers in registers",
        "addresses of all stores to shared memory and of all loads from there, thread by thread",
        "another thread loads them in iterations that were not looked at",
        "keep the numbers in registers, and leave the barrier out; shared memory pays where other "
        "threads load them",
        least=0.03,
    ),
    "alike": InstructionKind(
        "alike-lanes",
        "{line} makes all lanes of a warp calculate the same numbers: {share} of all instructions, "
        "where each lane could take an element of its own",
        "with the elements spread over the lanes",
        "arithmetic in loops whose operands depend on no thread's number in its warp",
        "each step needs the one before it",
        "let each lane take every 32nd element, and combine the lanes' results behind the loop "
        "(__shfl_xor_sync, __reduce_add_sync, tl.sum)",
        gone=0.9,
        rarest=0.05,  # a scalar of each row takes 2 or 3 %
        with_loads=True,
        times=_ALL_OF_IT,
    ),
    "compared": InstructionKind(
        "slow-arithmetic",
        "{line} divides, or takes roots, and only compares the result: with the check that each "
        "division needs, {share} of all instructions",
        "with the other side of the comparison multiplied, or squared",
        "MUFU.RCP and MUFU.RSQ in loops, with what makes an exact result of them, whose results "
        "comparisons alone read",
        "the divisor may be zero or negative, and that decides",
        "compare without dividing: a > t * b in place of a / b > t, where b is positive, and "
        "squares in place of roots",
        least=0.05,
        times=_WITH_THE_CHECK,
    ),
    "guarded": InstructionKind(
        "slow-arithmetic",
        "{line} guards a length against overflow (hypotf, norm3df): the largest number, a factor "
        "for all, and the way back are {share} of all instructions",
        "without the guard",
        "the factor that these functions scale their numbers by, what it is made of, and what it "
        "multiplies",
        "squares of these numbers overflow",
        "sqrtf(x * x + y * y + z * z)",
        least=0.05,
        times=_WITH_THE_CHECK,
    ),
    "scaled sums": InstructionKind(
        "scaled-operands",
        "{line} multiplies what tensor cores give by factors that no iteration changes, and sums "
        "it up in registers: {share} of all instructions",
        "with the factors outside of the loop",
        "conversions and multiplications, in a loop, of what a product has just made, by numbers "
        "from outside of the loop, for a sum of all iterations",
        "the sums of tensor cores would overflow, or round too much",
        "let products add to their own sum over the loop, tl.dot(a, b, acc), and multiply that "
        "sum by the factors once, behind the loop",
        least=0.1,
    ),
    "pieces": InstructionKind(
        "narrow-loads",
        "{line} loads words in pieces of a byte or two, and puts them together: {each} "
        "instructions for each word, {share} of all",
        "with one load for each word",
        "narrow loads of adjacent bytes that nothing reads but what joins them",
        "the data is not aligned, and can't be",
        "align the data: no packed structures (__align__(16)), and pointers of the type that is "
        "loaded; then one load brings 16 bytes",
        gone=0.9,
        least=0.05,
        times=_WITH_THE_CHECK,
    ),
    "invariant": InstructionKind(
        "invariant-arithmetic",
        "{line} calculates in each iteration of a loop what no iteration changes: {share} of all "
        "instructions",
        "with it once, ahead of the loop",
        "floating-point arithmetic whose operands come from outside of the loop, or from loads at "
        "addresses that no iteration moves",
        "the loop's stores change what it loads",
        "calculate it once, ahead of the loop, into a local variable: a compiler leaves it inside "
        "where a store may be to what is loaded (__restrict__), or where a condition is around it",
        least=0.08,
        most=_OF_A_FUNCTION,
        by_issue=True,
        times=_WITH_THE_CHECK,
    ),
    "uniform": InstructionKind(
        "uniform-arithmetic",
        "{line} calculates the same in all threads of the launch: {share} of all instructions, "
        "from parameters, and from what all threads load",
        "with it once for all threads",
        "floating-point arithmetic whose operands depend on no thread, block or iteration",
        "its operands change while the kernel runs",
        "calculate it once, ahead of the launch, and pass the result as a parameter; or in one "
        "thread of each block, and share it through shared memory",
        least=0.08,
        most=_OF_A_FUNCTION,
        by_issue=True,
        times=_WITH_THE_CHECK,
    ),
    "swaps": InstructionKind(
        "atomics",
        "{line} adds to shared memory by loops of a load and a compare-and-swap, once more for "
        "each lane with the same address: {share} of all instructions",
        "with sums in registers",
        "compare-and-swap instructions on shared memory in loops, and what else these hold",
        "each lane adds to an address of its own",
        "sum in registers and by shuffles (__shfl_xor_sync, cub::WarpReduce) first, and add once "
        "for each warp; atomics of float and double on shared memory are loops, those of integers "
        "are not",
        least=0.15,
    ),
    "clocks": InstructionKind(
        "clock-reads",
        "{line} reads the clock in each iteration of a loop: with the sums of times {share} of all "
        "instructions, and loads can't pass them",
        "without reads of the clock",
        "reads of the clock in loops (clock(), clock64(), globaltimer), and integer arithmetic "
        "with what they read",
        "the times are what the kernel is for",
        "take the timing out of the loop, or out of the kernel",
        least=0.05,
    ),
    "reworked": InstructionKind(
        "reworked-operands",
        "{line} works on operands on their way to tensor cores, in each iteration: conversions, "
        "factors and moves between loads and products are {share} of all instructions",
        "with operands as the products take them",
        "arithmetic, conversions and moves, in loops with products, between what is loaded and the "
        "operand that a product takes, or shared memory for it",
        "the operand's format can't be changed ahead, and no tensor core takes it",
        "give products the operands as they lie in memory: tl.dot of FP8 or int8 operands as they "
        "are, factors of rows and columns on the sums behind the product, tiles loaded whole in "
        "the order that products need; or convert once, in a kernel ahead",
        least=0.2,
    ),
    "block votes": InstructionKind(
        "block-votes",
        "{line} asks all threads of the block in each iteration of a loop (__syncthreads_or, _and, "
        "_count) what none of its data decides: a barrier each time",
        "without asking",
        "barriers that reduce a predicate, in loops, which follows from thread numbers and sizes",
        "threads of a block have bounds of their own",
        "end the loop by a condition that all threads know: for a bound that is the same for all "
        "no barrier is needed",
        least=0.015,
        times=10.0,  # each waits for the block's last warp
    ),
    "logarithms": InstructionKind(
        "slow-arithmetic",
        "{line} adds logarithms and takes the exponential of the sum: {share} of all instructions, "
        "where products would do",
        "with products",
        "exponentials, in loops, of sums of two logarithms or more, with these sums",
        "products overflow where sums of logarithms don't",
        "multiply the numbers themselves, without log and exp",
        least=0.05,
        times=_WITH_THE_CHECK,
    ),
    "to and fro": InstructionKind(
        "needless-conversions",
        "{line} converts numbers to fewer bits and back at once: {share} of all instructions",
        "without the conversions",
        "conversions to 16 bits or fewer, in loops, whose results are only converted back",
        "results must be rounded there",
        "keep the numbers in FP32 until they are stored, or go to a product",
    ),
    "compensated": InstructionKind(
        "compensated-sums",
        "{line} carries the error of a sum along (Kahan): {share} of all instructions",
        "with plain sums",
        "additions, in loops, that subtract from a sum what it was before",
        "plain sums are not exact enough",
        "sum plainly, in several registers, or in pairs (a tree): as exact for most data, with an "
        "addition for each number",
        gone=0.75,
        least=0.15,
    ),
    "split": InstructionKind(
        "split-warps",
        "{line} runs with half of each warp's lanes or fewer, by the thread's number, while the "
        "others wait: {share} of all instructions",
        "with whole warps on one way",
        "instructions that nearly all warps execute, under conditions on thread numbers that at "
        "most 16 lanes of each fulfil",
        "there is no work for the other lanes",
        "let whole warps take one way: decide by the warp's or the block's number in place of the "
        "lane's, or give neighbouring lanes the same kind of element; where both ways are short, "
        "calculate both and select",
        gone=0.5,
        least=0.1,
        rarest=0.2,
    ),
}
