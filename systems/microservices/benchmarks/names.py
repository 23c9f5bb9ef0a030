"""The benchmarks of microservices by name (`python -m benchmarks NAME`)."""

BENCHMARKS = {"microservices-policies": "systems.microservices.benchmarks.control",
              "culprits": "systems.microservices.benchmarks.culprits"}
