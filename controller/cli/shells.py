"""Tab in bash, for names with a colon (MODEL:PRESET) or a space in them: click's own way breaks both.

bash takes a colon for the end of a word: it hands over `MODEL`, `:` and `PRE` as three words and replaces only what
stands behind the colon. So the line itself is handed over, and what is offered begins behind the colon again.
"""

from __future__ import annotations

import os

from click.shell_completion import BashComplete, add_completion_class, split_arg_string

_SOURCE = r"""
%(complete_func)s() {
    local IFS=$'\n' line="${COMP_LINE:0:COMP_POINT}" response completion kind value word before
    response=$(env COMP_LINE="$line" %(complete_var)s=bash_complete "$1")
    word="${line##*[[:space:]]}" before=""
    if [[ $word == *:* && $COMP_WORDBREAKS == *:* ]]; then
        before="${word%%:*}:"
    fi
    COMPREPLY=()
    for completion in $response; do
        kind="${completion%%%%,*}" value="${completion#*,}"
        case $kind in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain)
                printf -v value '%%q' "$value"
                COMPREPLY+=("${value#*"$before"}") ;;
        esac
    done
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class Bash(BashComplete):
    """As click's, but by the line (COMP_LINE up to the cursor)."""

    source_template = _SOURCE

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ.get("COMP_LINE", "")
        words = split_arg_string(line)
        begun = words.pop() if words and not line[-1:].isspace() else ""
        return words[1:], begun


def register() -> None:
    """For `slotserve completion bash` and what it calls."""
    add_completion_class(Bash)
