"""Every session of onnxruntime: one thread, and not a word of its own on the terminal.

Its warnings repeat names out of the file as they stand, escape sequences to the terminal among them; what matters of
what it finds it raises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnxruntime

FATAL = 4


def open_session(model: bytes | str, optimised: bool = True) -> onnxruntime.InferenceSession:
    """A session on one thread of the CPU: a row is microseconds of work, and waking another thread costs more.

    Args:
        model: content, or path.
        optimised: with onnxruntime's default optimisations, which is how a file is run; False: as it stands.

    Raises whatever onnxruntime does, which has no family of errors.
    """
    import onnxruntime

    onnxruntime.set_default_logger_severity(FATAL)  # of what is said before there is a session
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = FATAL
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
