"""Completion of verbs, groups, keys and values by the TAB key, in bash and zsh.

`eval "$(desa run -sc install=bash)"` installs a function that asks `desa VERB -sc query=bash`; the
answer is Hydra's, for a command line without the verb.
"""

import os
import re
from collections.abc import Sequence

from desa_ray.errors import DesaError, choices

SHELLS = ("bash", "zsh")
HYDRA_VERBS = ("run", "plan", "submit", "generate", "verify", "report")
INSTALL = """\
_desa_completion() {
    local word verb
    word="${COMP_WORDS[COMP_CWORD]}"
    verb="${COMP_WORDS[1]}"
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "VERBS" -- "$word"))
        [ "${#COMPREPLY[@]}" -eq 1 ] && COMPREPLY[0]="${COMPREPLY[0]} "
        return
    fi
    word="${COMP_LINE:0:COMP_POINT}"
    word="${word##* }"
    case " HYDRA " in
    *" $verb "*)
        local IFS=$'\\n'
        COMPREPLY=($(export COMP_LINE COMP_POINT
            "${COMP_WORDS[0]}" "$verb" -sc query=bash 2>/dev/null \\
            | tr ' ' '\\n' | grep -F -- "$word"))
        ;;
    esac
}
COMP_WORDBREAKS=${COMP_WORDBREAKS//=}
complete -o nospace -o default -F _desa_completion desa
"""
ZSH = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"
UNINSTALL = "complete -r desa 2>/dev/null\nunset -f _desa_completion\n"


def script(overrides: Sequence[str], verbs: Sequence[str]) -> str | None:
    """What `-sc install=SHELL` and `-sc uninstall=SHELL` print; None for a query.

    Raises:
        DesaError: it is none of the three, or a shell without completion.
    """
    command, _, shell = (overrides[0] if len(overrides) == 1 else "").partition("=")
    if command not in ("install", "uninstall", "query"):
        hint = 'write eval "$(desa run -sc install=bash)"'
        raise DesaError("needs install=SHELL or uninstall=SHELL", where="-sc", hint=hint)
    if shell not in SHELLS:
        raise DesaError(f"no completion for {shell!r}", where="-sc", hint=choices(shell, SHELLS))
    if command == "query":
        return None
    if command == "uninstall":
        return UNINSTALL
    text = INSTALL.replace("VERBS", " ".join(verbs)).replace("HYDRA", " ".join(HYDRA_VERBS))
    return ZSH + text if shell == "zsh" else text


def leave_out_verb() -> None:
    """Tell Hydra the command line as it would be without the verb, up to the cursor; an empty one
    where no shell asks.
    """
    line = os.environ.get("COMP_LINE", "")
    point = os.environ.get("COMP_POINT", "")
    before = line[: int(point)] if re.fullmatch("[0-9]{1,9}", point) else line
    program, _, rest = before.lstrip().partition(" ")
    os.environ["COMP_LINE"] = f"{program or 'desa'} {rest.lstrip().partition(' ')[2]}"
