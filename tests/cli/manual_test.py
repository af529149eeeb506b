# SPDX-License-Identifier: MIT
"""python3 manual_test.py KDVFS MANUAL FOLDER: man pages and completions have each subcommand and option of the command."""

import pathlib
import re
import shutil
import subprocess
import sys
import unittest

KDVFS, MANUAL, FOLDER = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])


def said(*arguments):
    return subprocess.run([KDVFS, *arguments, "--help"], capture_output=True, text=True, check=True).stdout


def subcommands():
    block = said().split("Subcommands:")[1].split("\n\n")[0]
    return re.findall(r"^  (\S+)", block, re.M)


def completions(*words):
    script = f"source {FOLDER}/bash/kdvfs; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _kdvfs; echo \"${{COMPREPLY[@]}}\""
    run = subprocess.run(["bash", "-c", script, "bash", *words], capture_output=True, text=True, check=True)
    return run.stdout.split()


class Manual(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        shutil.rmtree(FOLDER, ignore_errors=True)
        subprocess.run([sys.executable, MANUAL, KDVFS, FOLDER], check=True)

    def test_each_subcommand_has_a_page_with_each_of_its_options(self):
        self.assertGreater(len(subcommands()), 10)
        for name in subcommands():
            page = (FOLDER / f"man/man1/kdvfs-{name}.1").read_text().replace("\\-", "-")
            for option in re.findall(r"^  (?:-\w,)?(--[\w-]+)", said(name), re.M):
                self.assertIn(option, page, name)

    @unittest.skipUnless(shutil.which("groff"), "no groff")
    def test_pages_are_formatted_without_a_warning(self):
        for page in sorted((FOLDER / "man/man1").glob("*.1")):
            run = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z", page], capture_output=True, text=True)
            self.assertEqual((run.returncode, run.stderr), (0, ""), page)

    def test_bash_completes_subcommands_options_and_choices(self):
        self.assertEqual(completions("kdvfs", "pl"), ["plan", "plan-pipeline", "plan-pool"])
        self.assertEqual(completions("kdvfs", "plan", "--max"), ["--max-slowdown"])
        self.assertEqual(completions("kdvfs", "plan", "--format", ""), ["table", "json", "header"])
        for name in subcommands():
            options = set(re.findall(r"^  (?:-\w,)?(--[\w-]+)", said(name), re.M))
            self.assertLessEqual(options, set(completions("kdvfs", name, "--")), name)

    def test_zsh_and_fish_name_each_subcommand(self):
        zsh, fish = (FOLDER / "zsh/_kdvfs").read_text(), (FOLDER / "fish/kdvfs.fish").read_text()
        for name in subcommands():
            self.assertIn(f"    {name}) _arguments", zsh)
            self.assertIn(f"-a {name} -d", fish)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
