"""A tree of plain files of the form of /sys/devices/system/cpu/cpufreq, powercap and hwmon."""

import json
from pathlib import Path

FIRST_KHZ, LEAST_KHZ, MOST_KHZ = 3_000_000, 1_200_000, 3_000_000
STATUS = {"rate_rps": 120.0, "latency_ms": 21.0, "ips_1e9": 0.4, "usage": 0.5, "stall_share": 0.25}


def kernel_files(root: Path, policies: int = 2, governor: str = "performance") -> dict[str, object]:
    """Makes it; its part of a controller file."""
    for number in range(policies):
        policy = root / "cpufreq" / f"policy{number}"
        policy.mkdir(parents=True)
        speed = str(2_000_000) if governor == "userspace" else "<unsupported>"
        for name, text in {"scaling_governor": governor, "scaling_max_freq": str(FIRST_KHZ), "scaling_setspeed": speed,
                           "scaling_min_freq": str(LEAST_KHZ), "cpuinfo_max_freq": str(MOST_KHZ),
                           "scaling_cur_freq": str(1_900_000 + 200_000 * number)}.items():
            (policy / name).write_text(f"{text}\n")
    (root / "rapl").mkdir()
    for name, value in {"energy_uj": 1_000_000, "max_energy_range_uj": 262_143_328_850,
                        "constraint_0_power_limit_uw": 120_000_000}.items():
        (root / "rapl" / name).write_text(f"{value}\n")
    (root / "temp1_input").write_text("61000\n")
    (root / "status.json").write_text(json.dumps(STATUS))
    return {"cpufreq": str(root / "cpufreq"), "policies": [f"policy{number}" for number in range(policies)],
            "temperature": str(root / "temp1_input"), "limit_c": 84.5, "status": str(root / "status.json"),
            "powercap": str(root / "rapl"), "state": str(root / "state")}
