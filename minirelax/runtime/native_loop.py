# ruff: noqa: F821 -- the names without a definition are supplied when this text is compiled (see vm.py)
"""The native loop and the pool's worker, as Numba compiles them.

This file is source text for `vm.py`, which adds the names that it uses: the functions of `intrinsics.py`, and as integers the
opcodes, statuses and header words. Its functions work on raw int64 memory; nothing here touches a Python object except
`enter`, which is called by CPython.

How threads share a region. The pool has one job and one atomic word, the *gate*: how many workers are inside (low bits), OPEN,
OWNED, and an epoch above. A caller takes a gate with nobody inside and no owner (compare-and-swap to OWNED; whoever does not get
it runs alone), sets the counters, publishes the job, opens the gate with a new epoch, works, and closes it. A worker enters an
open gate by compare-and-swap, so between its seeing a job and its being counted the job cannot change. Once inside it reads no
slot of the frame before it has claimed tiles, because only claimed tiles keep the caller waiting: a worker that comes late finds
all tiles claimed and leaves, even if the caller is long gone. Everything it looks at until then (code, counters, the header)
lives until `pool.quiesce`.
"""


def run(frame, code, pc, pool):
    """Run instructions from `pc` on; returns Status + (pc to resume at << 8)."""
    while True:
        now = words(code + 8 * pc)
        opcode = now[0]
        following = pc + now[1]
        if opcode == CALL:
            tiles = frame[now[3]]
            if tiles > 0:
                gather(frame, now, frame[ARGUMENTS])
                call_kernel(now[2], frame[ARGUMENTS], 0, tiles, frame[now[5]])
        elif opcode == MATCH:
            found = words(words(frame[now[2]])[ARRAY_DIMENSIONS])[now[3]]
            operand = now[5]
            if now[4] == MATCH_STORE:
                frame[operand] = found
            else:
                expected = operand if now[4] == MATCH_IMMEDIATE else frame[operand]
                if found != expected:
                    return stop(frame, STATUS_FAIL, pc, now[6], found, expected)
        elif opcode == CONST:
            frame[now[2]] = now[3]
        elif ADD <= opcode <= MAX:
            a = frame[now[3]]
            b = frame[now[4]]
            error = 0
            if opcode == ADD:
                value = a + b
                error = OVERFLOW if add_overflows(a, b) else 0
            elif opcode == SUB:
                value = a - b
                error = OVERFLOW if sub_overflows(a, b) else 0
            elif opcode == MUL:
                value = a * b
                error = OVERFLOW if mul_overflows(a, b) else 0
            elif opcode == MIN:
                value = a if a < b else b
            elif opcode == MAX:
                value = a if a > b else b
            elif b == 0:
                value = 0
                error = DIVIDED_BY_ZERO
            elif b == -1:  # the hardware traps at the smallest integer divided by -1
                value = -a if opcode == FLOORDIV else 0
                error = OVERFLOW if value == a and a < 0 else 0
            else:
                value = a // b
                if opcode == MOD:
                    value = a - value * b
            if error != 0:
                return stop(frame, STATUS_FAIL, pc, error, a, b)
            frame[now[2]] = value
        elif opcode == MOVE:
            frame[now[2]] = frame[now[3]]
        elif opcode == ADDRESS:
            frame[now[2]] = frame[now[3]] + frame[now[4]]
        elif opcode == ALIGN:
            frame[now[2]] = (frame[now[3]] + 63) & -64
        elif GUARD <= opcode <= COMPARE:
            a = frame[now[4]]
            b = frame[now[5]]
            # bits of `relation`: 1 less, 2 equal, 4 greater
            relation = 1 if a < b else 2 if a == b else 4
            holds = 1 if relation & now[2] != 0 else 0
            if opcode == COMPARE:
                frame[now[3]] = holds
            elif holds == 0:
                return stop(frame, STATUS_GUARD, pc, now[3], a, b)
        elif opcode == ARRAY:
            array = words(frame[now[2]])
            if array[OBJECT_TYPE] != now[5]:
                return stop(frame, STATUS_ARRAY, following, now[6], -1, now[3])
            dimensions = array[ARRAY_NDIM] & 0xFFFFFFFF
            wrong_dtype = now[4] != 0 and array[ARRAY_DTYPE] != now[4]
            if wrong_dtype or (now[3] >= 0 and dimensions != now[3]):
                return stop(frame, STATUS_ARRAY, following, now[6], dimensions, now[3])
        elif opcode == DATA:
            array = words(frame[now[3]])
            if array[ARRAY_FLAGS] & ARRAY_IN_ORDER != ARRAY_IN_ORDER:
                return stop(frame, STATUS_NOT_CONTIGUOUS, pc, now[3], array[ARRAY_FLAGS] & 0xFFFFFFFF, ARRAY_IN_ORDER)
            frame[now[2]] = array[ARRAY_DATA]
        elif opcode == LOAD:
            frame[now[2]] = load_integer(frame[now[3]], now[4])
        elif opcode == COPY:
            if frame[now[2]] != frame[now[3]]:
                memmove(frame[now[2]], frame[now[3]], frame[now[4]])
        elif opcode == JUMP:
            following = now[2]
        elif opcode == BRANCH:
            if frame[now[2]] == 0:
                following = now[3]
        elif opcode == PARALLEL:
            if run_parallel(frame, code, pc, pool) != 0:
                following = now[3]
        elif opcode == LIBRARY:
            return stop(frame, STATUS_LIBRARY, following, NO_MESSAGE, now[2], 0)
        elif opcode == PAUSE:
            return STATUS_PAUSE | following << 8
        elif opcode == RETURN:
            return STATUS_RETURN | following << 8
        elif opcode != END:
            return stop(frame, STATUS_INVALID, pc, NO_MESSAGE, opcode, 0)
        pc = following


def gather(frame, call, address):
    """Copy the values of a CALL's slots to where the kernel reads its arguments."""
    arguments = words(address)
    for i in range(call[7]):
        arguments[i] = frame[call[8 + i]]
    return 0


def stop(frame, status, pc, message, found, expected):
    """Leave a note in the header and make the status word."""
    frame[MESSAGE] = message
    frame[FOUND] = found
    frame[EXPECTED] = expected
    return status | pc << 8


def run_parallel(frame, code, pc, pool):
    """Run the region at `pc` with the pool. 1: done; 0: not, run it alone."""
    job = words(pool)
    now = words(code + 8 * pc)
    threads = lesser(atomic_load(pool + 8 * POOL_THREADS), frame[THREADS])
    cost = frame[now[2]]
    if threads < 2 or cost < job[POOL_AWAKE] or now[4] > frame[COUNTED_CALLS]:
        return 0
    if atomic_load(pool + 8 * POOL_SLEEPERS) > 0 and cost < job[POOL_ASLEEP]:
        # Waking costs the caller microseconds, which one small region does not earn back; a stream of them does.
        if atomic_add(pool + 8 * POOL_DEBT, cost) + cost < job[POOL_ASLEEP]:
            return 0
    atomic_store(pool + 8 * POOL_DEBT, 0)
    gate = pool + 8 * POOL_GATE
    seen = atomic_load(gate)
    waited = 0
    while seen & GATE_INSIDE != 0 and seen & GATE_OWNED == 0 and waited < 1000:  # latecomers of the region before
        spin_hint()
        waited += 1
        seen = atomic_load(gate)
    if seen & (GATE_OWNED | GATE_INSIDE) != 0:
        return 0
    if not compare_and_swap(gate, seen, seen | GATE_OWNED):
        return 0
    begin = pc + now[1]
    set_counters(frame, code, begin, now[3], threads, job[POOL_CHUNK])
    job[JOB_FRAME] = address_of(frame)
    job[JOB_CODE] = code
    job[JOB_BEGIN] = begin
    job[JOB_END] = now[3]
    job[JOB_THREADS] = threads
    atomic_store(gate, ((seen & -GATE_EPOCH) + GATE_EPOCH) | GATE_OPEN | GATE_OWNED)
    wake(pool, threads - 1)
    run_region(frame, code, begin, now[3], 0, threads)
    atomic_add(gate, -(GATE_OPEN | GATE_OWNED))
    return 1


def set_counters(frame, code, pc, end, threads, chunk):
    """Make the claim counters of the calls from `pc` to `end` ready."""
    line = frame[COUNTERS]
    while pc < end:
        call = words(code + 8 * pc)
        tiles = frame[call[3]]
        cost = frame[call[4]]
        ranges = threads if tiles > 1 and cost >= chunk else 1  # a small call is the caller's alone
        share = (tiles + ranges - 1) // ranges
        counter = words(line)
        counter[0] = 0
        counter[1] = tiles
        # Large enough to make a claim's cost vanish, small enough to even out the threads.
        counter[2] = tiles if ranges == 1 else lesser(share // 4, tiles * chunk // cost) | 1  # never zero
        counter[3] = ranges
        for i in range(ranges):
            counter = words(line + 64 * (1 + i))
            counter[0] = lesser(tiles, share * i)
            counter[1] = lesser(tiles, share * (i + 1))
        line += 64 * (1 + threads)
        pc += call[1]
    return 0


def run_region(frame, code, pc, end, who, threads):
    """Do this thread's part of the calls from `pc` to `end`; returns how many tiles that was."""
    line = frame[COUNTERS]
    arguments = frame[ARGUMENTS] + who * frame[ARGUMENT_BYTES]
    count = 0
    while pc < end:
        call = words(code + 8 * pc)
        counter = words(line)
        tiles = counter[1]
        ranges = counter[3]
        chunk = counter[2]
        ready = False
        for turn in range(ranges if ranges > 1 or who == 0 else 0):
            side = who + turn if who + turn < ranges else who + turn - ranges
            claimed = line + 64 * (1 + side)
            limit = words(claimed)[1]
            while atomic_load(claimed) < limit:
                first = atomic_add(claimed, chunk)
                if first >= limit:
                    break
                last = lesser(limit, first + chunk)
                if not ready:
                    gather(frame, call, arguments)
                    ready = True
                call_kernel(call[2], arguments, first, last, frame[call[5]] + who * frame[call[6]])
                atomic_add(line, last - first)
                count += last - first
        waited = 0
        while atomic_load(line) < tiles:
            spin_hint()
            waited += 1
            if waited > 100:  # a few microseconds: whoever has the tiles may need this processor
                sched_yield()
        line += 64 * (1 + threads)
        pc += call[1]
    return count


def load_integer(address, kind):
    """The integer at an address: `kind` is its size in bytes, negative if it has no sign."""
    if kind == 8 or kind == -8:
        return load_int64(address)
    if kind == 4 or kind == -4:
        value = load_int32(address)
    elif kind == 2 or kind == -2:
        value = load_int16(address)
    else:
        value = load_int8(address)
    return value if kind > 0 else value & ((1 << (-8 * kind)) - 1)


def worker(record):
    """What a thread of the pool does until the pool is smaller than its index."""
    own = words(record)
    pool = own[RECORD_POOL]
    job = words(pool)
    gate = pool + 8 * POOL_GATE
    epoch = -1
    began = nanoseconds(record)
    waited = 0
    while atomic_load(pool + 8 * POOL_THREADS) > own[RECORD_INDEX]:
        signal = atomic_load(pool + 8 * POOL_SIGNAL)
        seen = atomic_load(gate)
        if seen & GATE_OPEN != 0 and seen & -GATE_EPOCH != epoch:
            if compare_and_swap(gate, seen, seen + 1):
                epoch = seen & -GATE_EPOCH
                if own[RECORD_INDEX] < job[JOB_THREADS]:
                    own[RECORD_TILES] += run_region(
                        words(job[JOB_FRAME]), job[JOB_CODE], job[JOB_BEGIN], job[JOB_END],
                        own[RECORD_INDEX], job[JOB_THREADS])
                atomic_add(gate, -1)
                began = nanoseconds(record)
            continue
        spin_hint()
        waited += 1
        if waited & 15 == 0 and nanoseconds(record) - began > job[POOL_SPIN]:
            atomic_add(pool + 8 * POOL_SLEEPERS, 1)
            if atomic_load(pool + 8 * POOL_THREADS) > own[RECORD_INDEX]:
                # FUTEX_WAIT_PRIVATE: sleeps only if nobody signalled since `signal` was read
                syscall(FUTEX, pool + 8 * POOL_SIGNAL, 128, signal & 0xFFFFFFFF, 0, 0, 0)
            atomic_add(pool + 8 * POOL_SLEEPERS, -1)
            began = nanoseconds(record)
    return 0


def wake(pool, threads):
    """Let sleeping workers look at the pool again."""
    atomic_add(pool + 8 * POOL_SIGNAL, 1)
    if atomic_load(pool + 8 * POOL_SLEEPERS) > 0:
        syscall(FUTEX, pool + 8 * POOL_SIGNAL, 129, threads, 0, 0, 0)  # FUTEX_WAKE_PRIVATE
    return 0


def nanoseconds(record):
    """The monotonic clock."""
    clock_gettime(1, record + 8 * RECORD_CLOCK)
    clock = words(record)
    return clock[RECORD_CLOCK] * 1000000000 + clock[RECORD_CLOCK + 1]


def enter(_, arguments, count):
    """CPython calls this (METH_FASTCALL): enter(frame, code, pc, pool, *objects) -> status. Objects go to the first slots."""
    frame = words(PyLong_AsLongLong(arguments[0]))
    for i in range(count - 4):
        frame[HEADER + i] = arguments[4 + i]
    return PyLong_FromLongLong(
        run(frame, PyLong_AsLongLong(arguments[1]), PyLong_AsLongLong(arguments[2]), PyLong_AsLongLong(arguments[3])))


def enter_released(_, arguments, count):
    """The same without the interpreter's lock while the program runs."""
    frame = words(PyLong_AsLongLong(arguments[0]))
    code = PyLong_AsLongLong(arguments[1])
    pc = PyLong_AsLongLong(arguments[2])
    pool = PyLong_AsLongLong(arguments[3])
    for i in range(count - 4):
        frame[HEADER + i] = arguments[4 + i]
    thread = PyEval_SaveThread()
    status = run(frame, code, pc, pool)
    PyEval_RestoreThread(thread)
    return PyLong_FromLongLong(status)
