"""What a sender observes and sets: Table A.6 of the thesis, with what tells links apart that differ in scale.

An interval is half the least round trip (PCC-RL's are half a mean one); what it shows of packets is what was
acknowledged or found lost in it, one round trip after it was sent. A packet has PACKET_BYTES.
"""

from models.control.contract.signals import Anchor, Control, Feature, Signal

PACKET_BYTES = 1500
STEP_SECONDS = 0.1  # of an ordinary interval; each sender's own is `interval_s`
MOST_PPS = 16384.0

SIGNALS = (
    Signal("rate_pps", "1/s", 1.0, MOST_PPS, "log", "packets that are sent a second"),
    Signal("rate_before_pps", "1/s", 1.0, MOST_PPS, "log", "the same in the interval before"),
    Signal("acked_pps", "1/s", 0.25, MOST_PPS, "log", "packets acknowledged a second"),
    Signal("most_acked_pps", "1/s", 0.25, MOST_PPS, "log", "the most of late, fading over ten round trips"),
    Signal("acked_share", "1", 2.0**-6, 2.0**6, "log", "of what is sent, what was acknowledged"),
    Signal("most_acked_share", "1", 2.0**-6, 2.0**6, "log", "the same of the most acknowledged"),
    Signal("rtt_s", "s", 2.0**-10, 64.0, "log", "mean round trip of the packets acknowledged"),
    Signal("min_rtt_s", "s", 2.0**-10, 64.0, "log", "the least of them, forgotten where few were in flight for long"),
    Signal("queueing_s", "s", 2.0**-12, 64.0, "log", "mean round trip beyond the least"),
    Signal("rtt_slope", "1", -1.0, 1.0, "linear", "seconds by which a round trip grows a second"),
    Signal("mean_rtt_slope", "1", -1.0, 1.0, "linear", "its exponential mean over four intervals"),
    Signal("loss_share", "share", 0.0, 1.0, "linear", "packets lost, of those acknowledged or lost"),
    Signal("mean_loss_share", "share", 0.0, 1.0, "linear", "its exponential mean over 16 intervals"),
    Signal("interval_s", "s", 2.0**-10, 32.0, "log", "length of the interval"),
    Signal("most_queueing_s", "s", 2.0**-10, 8.0, "log", "objective of `queueing_s`"),
)

CONTROLS = (
    Control("target_rate_pps", "rate_pps", "1/s", 1.0, MOST_PPS, 0.3, 0.25, meaning="packets a second",
            safe_side="less"),
)

FEATURES = (
    Feature("queueing over objective", {"queueing_s": 1.0, "most_queueing_s": -1.0}),
    Feature("queueing over round trip", {"queueing_s": 1.0, "rtt_s": -1.0}),
    Feature("packets in the queue", {"queueing_s": 1.0, "acked_pps": 1.0}),
    Feature("round trip over the least", {"rtt_s": 1.0, "min_rtt_s": -1.0}),
    Feature("slope of the round trip", {"rtt_slope": 1.0}),
    Feature("its mean", {"mean_rtt_slope": 1.0}),
    Feature("loss", {"loss_share": 1.0}),
    Feature("its mean", {"mean_loss_share": 1.0}),
    Feature("acknowledged over sent before", {"acked_pps": 1.0, "rate_before_pps": -1.0}),
    Feature("acknowledged over the most", {"acked_pps": 1.0, "most_acked_pps": -1.0}),
    Feature("rate over the most acknowledged", {"rate_pps": 1.0, "most_acked_pps": -1.0}),
    Feature("rate over rate before", {"rate_pps": 1.0, "rate_before_pps": -1.0}),
    Feature("rate", {"rate_pps": 1.0}),
    Feature("round trip", {"min_rtt_s": 1.0}),
)

# Half way to the most that came through of late: an untrained policy neither starves nor floods.
ANCHORS = {"target_rate_pps": Anchor({"rate_pps": 0.5, "most_acked_pps": 0.5})}
