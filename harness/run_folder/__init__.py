"""The files of a run, through which all data flow from the player to the checkers."""
