"""SGLang's real `sglang serve` command line, asked over pipes. Runs in an environment that has what SGLang imports.

First line out: the options; then, for each command line in (JSON), what the parser made of it. No server is started.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import parser_service
import sglang.cli.serve as cli_serve
from sglang.cli import main as cli_main
from sglang.srt.server_args import ServerArgs


def main() -> None:
    options = argparse.ArgumentParser(prog="sglang serve")
    ServerArgs.add_cli_args(options)
    handed: list[list[str]] = []
    cli_serve.serve = lambda _args, extra: handed.append(extra)

    def parse(arguments: list[str]) -> dict[str, Any]:
        handed.clear()
        sys.argv = ["sglang", *arguments]
        cli_main.main()
        (extra,) = handed
        backend, rest = cli_serve._extract_model_type_override(extra)
        rest, _positional = cli_serve._normalize_positional_model_path(rest)
        if "--config" in rest or cli_serve.get_pipeline_class_name(rest) or backend != "auto":
            return {"other_program": True}
        if "-h" in rest or "--help" in rest:
            raise SystemExit(0)
        args = options.parse_args(rest)
        return {
            "model": args.model_path,
            "names": [args.served_model_name],
            "host": args.host,
            "port": args.port,
            "socket": None,
            "key": args.api_key,
            "elsewhere": sorted(
                name
                for name, value in vars(args).items()
                if name.startswith(OURS) and value != options.get_default(name)
            ),
        }

    parser_service.run(options, parse)


OURS = (
    *(
        "admin_api_key",
        "fastapi_root_path",
        "ssl_",
        "enable_ssl",
        "config",
        "dist_init_addr",
        "nccl_port",
        "grpc_mode",
        "grpc_port",
    ),
    *("smg_", "use_ray", "encoder_only", "enable_http_worker", "base_gpu_id", "gpu_id_step", "nnodes", "node_rank"),
    *("gated_launch_port", "sidecar"),
)

if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    argparse.ArgumentParser.print_usage = lambda *_args, **_kwargs: None  # type: ignore[method-assign]
    main()
