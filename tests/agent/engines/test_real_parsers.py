"""Our stripping beside the engines' own parsers: whatever a preset says, they end with our model, name and address.

vLLM's and SGLang's run where `make engine-parsers` put them, llama-server from PATH or PyPI. `make test-arguments` does
the same with 20,000 lists an engine. Everywhere, vLLM's and SGLang's option lists are read by Python's argparse.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agent import sglang_options, vllm_options
from controller.cli.demo_parts import LlamaServer
from tests.arguments import llama
from tests.arguments.compare import compare
from tests.arguments.lists import Lists
from tests.arguments.model_parser import ModelParser
from tests.arguments.service import SGLANG, VLLM, RealParser, missing
from tests.arguments.tables import BLOCKS, table

LISTS = 500
MODULES = {"vllm": vllm_options, "sglang": sglang_options}


@pytest.fixture(scope="module", params=["vllm", "sglang"])
def parser(request: pytest.FixtureRequest) -> Iterator[tuple[str, RealParser]]:
    """An engine's name and its parser."""
    why = missing(request.param)
    if why:
        pytest.skip(f"{request.param}'s parser: {why}")
    real = RealParser(request.param)
    yield request.param, real
    real.close()


@pytest.mark.engine_parsers
def test_the_table_is_the_parsers_own(parser: tuple[str, RealParser]) -> None:
    engine, real = parser
    module = MODULES[engine]
    assert {"vllm": VLLM, "sglang": SGLANG}[engine] == module.VERSION
    there = table(real.options)
    for kind, (name, _words) in BLOCKS.items():
        assert getattr(module, name).split() == there.get(kind, []), kind


@pytest.mark.engine_parsers
@pytest.mark.timeout(300)
def test_lists_come_out_as_ours(parser: tuple[str, RealParser]) -> None:
    engine, real = parser
    lists = Lists(engine, real.options)
    outcome = compare(engine, real, (lists.draw(number) for number in range(LISTS)))
    assert outcome.failures == []
    assert outcome.counts["taken as ours"] > LISTS * 0.7, outcome.counts


@pytest.mark.parametrize("engine", sorted(MODULES))
def test_lists_come_out_as_ours_in_an_argparse_of_their_options(engine: str) -> None:
    model = ModelParser(engine)
    lists = Lists(engine, model.options)
    outcome = compare(engine, model, (lists.draw(number) for number in range(LISTS)))
    assert outcome.failures == []
    assert outcome.counts["taken as ours"] > LISTS * 0.7, outcome.counts


@pytest.mark.timeout(300)
def test_lists_come_out_as_ours_in_llama_server(llama_server: LlamaServer) -> None:
    outcome = llama.compare(LISTS, workers=2)
    assert not isinstance(outcome, str)
    assert outcome.failures == []
    assert outcome.counts["taken as ours"] > LISTS * 0.5, outcome.counts
