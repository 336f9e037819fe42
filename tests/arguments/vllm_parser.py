"""vLLM's real `vllm serve` command line, asked over pipes. Runs in an environment that has vLLM, not in the project's.

First line out: the options (see `_describe` in parser_service). Then, for each command line in (JSON), what the parser
made of it. `serve` itself is never reached.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import parser_service
from vllm.entrypoints.cli.serve import ServeSubcommand
from vllm.utils.argparse_utils import FlexibleArgumentParser


def main() -> None:
    outer = FlexibleArgumentParser(description="vLLM CLI")
    outer.add_argument("-v", "--version", action="version", version="0")
    commands = outer.add_subparsers(required=False, dest="subparser")
    serve = ServeSubcommand()
    options = serve.subparser_init(commands)

    def parse(arguments: list[str]) -> dict[str, Any]:
        if "--omni" in arguments:
            return {"other_program": True}
        args = outer.parse_args(arguments)
        made = {
            "model": args.model if args.model_tag is None else args.model_tag,
            "names": args.served_model_name,
            "host": args.host,
            "port": args.port,
            "socket": args.uds,
            "key": args.api_key,
            # Whatever else would lead calls, or the process, elsewhere: each has to be as it is without any argument.
            "elsewhere": sorted(
                name
                for name, value in vars(args).items()
                if (name == "config" or name.startswith(OURS)) and value != options.get_default(name)
            ),
        }
        try:
            serve.validate(args)
        except Exception as err:  # noqa: BLE001 (of what else the preset says)
            made["invalid"] = str(err)
        return made

    parser_service.run(options, parse)


OURS = (
    *("ssl_", "root_path", "headless", "api_server_count", "grpc", "middleware", "data_parallel", "master_"),
    *("nnodes", "node_rank", "device_ids", "omni", "hf_token", "enable_ssl_refresh"),
)

if __name__ == "__main__":
    argparse.ArgumentParser.print_usage = lambda *_args, **_kwargs: None  # type: ignore[method-assign]
    main()
