"""The benchmarks of microservices by name (`python -m benchmarks NAME`)."""

BENCHMARKS = {"microservices-policies": "systems.microservices.benchmarks.control",
              "microservices-live": "systems.microservices.benchmarks.live",
              "microservices-law": "systems.microservices.benchmarks.law",
              "culprits": "systems.microservices.benchmarks.culprits"}
