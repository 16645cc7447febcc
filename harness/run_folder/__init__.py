"""The files of one run: where they are, who writes and who reads them, and whether they are as the run left them.

Data flows through here from runner to checkers, and nowhere else.
What the files mean is for `checkers`.
"""
