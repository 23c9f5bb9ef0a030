"""A decision about one replica as the limits of a group of equal ones."""

from hypothesis import example, given
from hypothesis import strategies as st

from serving.actuators.control_group.replica_limits import CPU, MEMORY, REPLICAS, ReplicaLimits

BYTES = st.one_of(st.just("max"), st.integers(4096, 2**41).map(str))


@given(st.integers(1, 49), st.one_of(st.just("max"), st.integers(1000, 10**8).map(str)), st.integers(1000, 10**6),
       BYTES, st.one_of(st.none(), BYTES))
@example(1, "max", 100_000, "max", None)  # which has the host, and stays without a limit
@example(1, "50000", 100_000, str(100 * 2**20), str(80 * 2**20))  # version 2: what throttles below what kills
@example(49, "100000", 100_000, str(49 * 2**20 + 4096), None)
@example(3, "500", 1000, "10000", None)  # bytes that are no whole pages
def test_what_is_to_stay_as_it_is_takes_nothing_from_any_limit(replicas, quota, period, memory, high):
    """A shield that lets nothing be taken away says so: the present value is the target."""
    one = ReplicaLimits(replicas, "a group")
    limits = {"cpu": f"{quota} {period}", "memory": memory, **({} if high is None else {"memory_high": high})}
    targets = one.values((CPU, MEMORY, REPLICAS), limits)
    assert one.planned(targets, limits, lambda: 0) == ({}, [])
