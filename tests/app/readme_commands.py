"""Runs the README's commands as they stand there: every `sh` block, in order, in a folder of its own.

Usage: readme_commands.py README SLUICE
A json block after a line that ends in `NAME.json`: is written to that file. `my_text` holds the project's own pages.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile


def blocks(text):
    """(language, line before, body) of each fenced block."""
    for found in re.finditer(r"(?:^(?P<before>[^\n]*)\n)?^```(?P<language>\w*)[^\n]*\n(?P<body>.*?)^```", text,
                             re.MULTILINE | re.DOTALL):
        yield found["language"], found["before"] or "", found["body"]


def main():
    readme, sluice = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    commands = 0
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "my_text").mkdir()
        for pattern in ("*.md", "docs/*.md", "LICENSE"):
            for page in readme.parent.glob(pattern):
                shutil.copy(page, root / "my_text" / page.name)
        (root / "bin").mkdir()
        (root / "bin" / "sluice").symlink_to(sluice)
        for language, before, body in blocks(readme.read_text()):
            name = re.search(r"`([\w.]+\.json)`:$", before)
            if language == "json" and name:
                (root / name[1]).write_text(body)
            if language != "sh":
                continue
            for command in body.strip().splitlines():
                print("$", command, flush=True)
                subprocess.run(["bash", "-c", f'PATH="{root}/bin:$PATH"; {command}'], cwd=root, check=True)
                commands += 1
        exported = root / "exported"
        for file in ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"):
            if not (exported / file).exists():
                sys.exit(f"the export has no {file}")
    if commands < 6:
        sys.exit(f"only {commands} commands were found in {readme}")


main()
