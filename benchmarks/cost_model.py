r"""What a velocity should cost: operations, bytes and what devices tell each other.

With $N$ points, $M$ parameters, $d$ dimensions and $D$ devices, a velocity takes

- rows: about $R\,M$ operations for each point, where $R$ depends on flow and SDE and is measured
    once, on one device;
- the Gram matrix: $\tfrac58\cdot 2NM^2$ operations (blocks below the diagonal are mirrored);
- the factorisation, $M^3/3$ operations, and solves of $2M^2$, on every device alike;
- collectives: an all-reduce of $M^2 + O(M)$ numbers. A ring moves $2(D-1)/D$ of them through
    every device's link.

Rows and the Gram matrix divide by $D$; the factorisation does not, and the collective grows to a
limit. Nothing else is counted: no latency of kernels, no imbalance.

Run: python benchmarks/cost_model.py
"""

import dataclasses
import json

# Of float64 numbers.
BYTES = 8


@dataclasses.dataclass(frozen=True)
class Machine:
    """Rates of one device in float64, and of the link between devices."""

    name: str
    rows: float  # operations a second in derivatives of the flow
    products: float  # in products of matrices
    factor: float  # in factorisations
    link: float  # bytes a second that an all-reduce moves
    latency: float  # seconds of one


@dataclasses.dataclass(frozen=True)
class Size:
    """Of a velocity."""

    points: int
    parameters: int
    row_operations: float  # for each point and parameter


def seconds(size: Size, machine: Machine, devices: int) -> dict[str, float]:
    """Predicted times of the parts of a velocity."""
    n, m = size.points / devices, size.parameters
    volume = BYTES * (m**2 + 4 * m) * 2 * (devices - 1) / devices
    parts = {
        "rows_s": n * m * size.row_operations / machine.rows,
        "gram_s": 5 / 8 * 2 * n * m**2 / machine.products,
        "factor_s": (m**3 / 3 + 2 * m**2) / machine.factor,
        "collective_s": 0.0 if devices == 1 else volume / machine.link + machine.latency,
    }
    return parts | {"total_s": sum(parts.values())}


# Vendors' figures at a third of the peak (float64 of an A100: 9.7e12, 19.5e12 with tensor cores;
# NVLink 3 moves 300e9 bytes a second one way), derivatives at a tenth; hosts with 32 cores of 16
# operations a cycle at 2.5 GHz, likewise, and 25 Gb/s Ethernet at two thirds.
GPU = Machine("A100", 1e12, 6e12, 2e12, 1e11, 5e-5)
HOST = Machine("32 cores", 1.3e11, 4e11, 2e11, 2e9, 5e-4)


def projection(size: Size, machine: Machine, counts: tuple[int, ...]) -> list[dict]:
    """Times and efficiencies for some numbers of devices."""
    alone = seconds(size, machine, 1)["total_s"]
    rows = []
    for devices in counts:
        parts = seconds(size, machine, devices)
        rows.append(
            {
                "machine": machine.name,
                "devices": devices,
                "N": size.points,
                "M": size.parameters,
                **{name: float(f"{value:.3g}") for name, value in parts.items()},
                "efficiency": round(alone / parts["total_s"] / devices, 2),
            }
        )
    return rows


if __name__ == "__main__":
    for size in (Size(4096, 1746, 400.0), Size(2**20, 1746, 400.0), Size(2**20, 8192, 400.0)):
        for row in projection(size, GPU, (1, 8)) + projection(size, HOST, (1, 8, 64)):
            print(json.dumps(row), flush=True)
