import re

import numpy as np
import pytest

from models.reporting import plots
from models.reporting.figures import SVG_LIMIT_BYTES, embed
from models.reporting.plots import Activation


def some_plot(name: str) -> str:
    epochs = np.arange(1.0, 40.0)
    activations = [Activation(20.0, "REFUTED", 12), Activation(39.0, "PROVED", 0)]
    return plots.loss_curve(epochs, np.exp(-epochs / 9), np.exp(-epochs / 8), activations, name)


def test_the_same_data_give_the_same_bytes():
    assert some_plot("loss") == some_plot("loss")


def test_two_plots_share_no_id_and_every_reference_is_answered():
    first, second = some_plot("a"), some_plot("b")
    ids = [set(re.findall(r'\bid="([^"]+)"', svg)) for svg in (first, second)]
    assert ids[0] and not ids[0] & ids[1]
    for svg, known in zip((first, second), ids, strict=True):
        assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', svg)) <= known


def test_a_name_is_neither_markup_nor_formula():
    name = '</svg><script>alert("$x_1$")</script> $'
    x = np.linspace(0, 1, 5)
    svg = plots.partial_dependence(x, x, x, 1, (name, name), None, "p")
    assert "<script" not in svg and svg[-6:] == "</svg>" and svg.count("</svg>") == 1
    assert plots.correlation_heat_map([name, "工作"], [name], np.array([[0.3], [np.nan]]), "c").startswith("<svg")


def test_a_plot_of_very_many_marks_becomes_a_small_image():
    rng = np.random.default_rng(0)

    def draw(figure):
        figure.add_subplot().scatter(*rng.random((2, 3000)))

    markup = embed(draw, 3, 3, "many", 'a "quoted" description')
    assert markup.startswith('<img alt="a &quot;quoted&quot; description" src="data:image/png;base64,')
    points = rng.random((2, 200_000)) + 0.1
    scatter = plots.predicted_against_measured(*points, True, "verified", "ms", 0.05, (0.0, 1.2, False), "s")
    assert len(scatter) < 200_000  # the worst case, points all over the place


@pytest.mark.parametrize("activations", [[], [Activation(float(k), "REFUTED", None) for k in range(1, 300)]])
@pytest.mark.parametrize("loss", [[1.0], [0.0, 0.0], [np.nan, 2.0], [-1.0, 3.0], [1e90, 1e-90]])
def test_odd_histories_are_drawn(loss, activations):
    values = np.array(loss)
    epochs = np.arange(1.0, len(loss) + 1)
    assert plots.loss_curve(epochs, values, values[::-1], activations, "odd").startswith(("<svg", "<img"))


def test_only_the_longest_of_very_many_stages_are_drawn():
    stages = [{"name": f"stage {k}", "seconds": k, "peak_mb": None} for k in range(100)]
    assert len(plots.stage_times(stages, np.arange(100.0), "s")) < 2 * SVG_LIMIT_BYTES
