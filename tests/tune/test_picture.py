"""The picture of a search: scales and labels of its panels."""

from __future__ import annotations

import itertools

from rlframe.app.figure import scatter_panels

COLUMNS = {
    'policy.learn.learning_rate': [1e-4 * 1.9**i for i in range(8)],
    'policy.discount_factor': [0.9 + 0.01 * i for i in range(8)],
    'policy.learn.batch_size': [32, 256, 32, 64, 128, 64, 32, 32],
    'policy.other.replay_buffer.replay_buffer_size': [10 * 3**i for i in range(8)],
    'policy.model.encoder_hidden_size_list': [[2**i, 2**i, 2**i] for i in range(8)],
    'policy.learn.target_update_freq': [None, 20, 100, 20, None, True, 100, 20],
}


def test_domains_that_are_logarithmic_are_drawn_so_and_labels_do_not_overlap() -> None:
    figure = scatter_panels(COLUMNS, list(range(8)), 'score', 'title')
    figure.canvas.draw()
    panels = {axes.get_xlabel(): axes for axes in figure.axes if axes.get_visible()}
    assert {key: axes.get_xscale() for key, axes in panels.items()} == {
        'learn.learning_rate': 'log',
        'policy.discount_factor': 'linear',
        'learn.batch_size': 'linear',
        'replay_buffer.replay_buffer_size': 'log',
        'model.encoder_hidden_size_list': 'linear',
        'learn.target_update_freq': 'linear',
    }
    for key, axes in panels.items():
        labels = [label for label in axes.get_xticklabels() if label.get_text()]
        assert len(labels) >= 2, key
        if labels[0].get_rotation():
            continue  # slanted
        boxes = [label.get_window_extent() for label in labels]
        shown = [box for box in boxes if axes.bbox.x0 - 1 <= (box.x0 + box.x1) / 2 <= axes.bbox.x1 + 1]
        assert all(one.x1 < other.x0 for one, other in itertools.pairwise(shown)), key
