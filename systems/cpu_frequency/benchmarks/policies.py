"""The generic policy beside the governors, on services that nobody was tuned on (control/generic_policies.py).

    python -m benchmarks cpu-frequency-policies [--seeds 3]
"""

from functools import partial

from benchmarks.control.generic_policies import add_seeds, measure, output_of

OUTPUT, add_options, run = output_of("cpu_frequency"), add_seeds, partial(measure, "cpu_frequency")
