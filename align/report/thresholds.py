"""The limits of what reports show. Each says why it is there, and where its number comes from."""

from __future__ import annotations

from typing import Final

# Tables and lists of all kinds; `--all` shows the rest.
TABLE_ROWS: Final = 40
"""Rows of a table that is not shown whole: what follows scrolls the verdict off the screen.
Choice: fewer hide faults of middle-sized models, more fill two screens."""
SHORT_TABLE_ROWS: Final = 12
"""Rows of what only the first are of interest of: culprits of a step, renamed tensors, the least sure pairs.
Choice: fewer hide a second cause, more push what follows off the screen."""
LIST_LINES: Final = 20
"""Lines of a list of remarks or names that are left out.
Choice: a screen shows about twice as many, together with what stands around."""
INSPECTED_ENTRIES_SHOWN: Final = 100
"""Entries of a checkpoint that are listed, folded by their numbers.
Choice: who looks into a file wants to see its structure whole; unfolded files of more rows are rare."""
METRICS_SHOWN: Final = 100
"""Metrics of a log in its table.
Choice: two screens; logs of more count each layer or class, and nobody reads such a table."""
NAMES_ON_A_LINE: Final = 6
"""Names of modules, inputs or settings on one line.
Choice: six paths fill two or three lines of a terminal."""
NAMES_PER_REASON: Final = 3
"""Names of rows beside the reason why they have no figure.
Choice: the reason is what counts; more names hide it."""
OPEN_REASONS_SHOWN: Final = 8
"""Reasons why rows have no figure.
Choice: models have few; more are variants of one."""
INDEXES_SHOWN: Final = 12
"""Numbers of samples on one line.
Choice: two of them can be looked at; a dozen shows whether they follow a rule."""
LONGEST_ENTRY: Final = 200
"""Characters of a name or a value of a checkpoint.
Choice: metadata holds whole files; names are shorter."""
LONGEST_LEFT_OUT: Final = 80
"""Characters of what a conversion leaves out.
Choice: a line of a terminal; the record of the conversion holds the rest."""
HASH_DIGITS: Final = 16
"""Digits of a SHA-256 that are shown.
Choice: 64 bits distinguish any two files that somebody has; the document holds all."""

# A run as Markdown for a pull request.
MARKDOWN_CHARACTERS: Final = 60_000
"""Characters of the whole: a text that is longer than a comment may be is refused, and says nothing at all.
Source: GitHub takes comments of up to 65,536; the rest is for what a user's workflow puts around it."""
MARKDOWN_CELL_CHARACTERS: Final = 300
"""Characters of a cell or a reason.
Choice: the longest sentences of verdicts have about 250; the details hold all."""

# Numbers.
SHOWN_DIGITS: Final = 3
"""Significant digits of a figure in tables and sentences.
Choice: differences and limits are known to two or three; more look more exact than they are."""
MOST_SHOWN_DIGITS: Final = 6
"""Digits of a figure that fewer would make a whole number, which it is not.
Choice: what is nearer than that to a whole number is rounding of float32."""
LOSS_DIGITS: Final = 6
"""Digits of a loss: two losses of one step agree in the first ones.
Choice: float32 keeps 7; fewer show equal losses beside a difference."""
LARGEST_PLAIN_NUMBER: Final = 1e6
"""Larger numbers are shown with an exponent.
Choice: seven digits can be read at a glance, more have to be counted."""
LARGEST_FACTOR: Final = 100.0
"""Numbers above are counts and the like, and are not factors that are compared with a whole number.
Choice: 99.96 times the limit says no more than 100."""

# Forward comparisons.
CULPRITS_IN_PANEL: Final = 4
"""Culprits that are shown one by one; a table holds more.
Choice: four take about 25 lines, one screen."""
CODE_LINES_SHOWN: Final = 3
"""Lines of code of culprits that are alike.
Choice: one shows where to look; layers of a loop come from one line."""
ERRORS_SHOWN: Final = 3
"""Errors in the panel where no layer is divergent.
Choice: the others stand among the findings."""
ROWS_AT_END: Final = 8
"""Rows that stay at the end of a table of layers that is cut: the head of the model.
Choice: fewer hide what follows from a fault in the last block."""
ROWS_AROUND_FAULT: Final = 3
"""Rows that stay on either side of a fault.
Choice: they show that all before is right, and how the fault goes on; more hide that."""
FAULTS_NEVER_CUT: Final = 5
"""Faults around which rows stay when a table is cut.
Choice: further ones stand in the table of culprits."""
SHORTEST_FOLD: Final = 4
"""Layers in sequence that one row stands for.
Choice: fewer save no line, as the first and the last one stay."""

# Losses.
POINTS_AT_START: Final = 6
"""Points of a curve that are shown at its start, where curves of a faulty port part.
Choice: fewer hide how they part, more push the step where they do off the screen."""
POINTS_AT_END: Final = 4
"""Points that are shown at the end.
Choice: they show the final gap, for which two would do."""
POINTS_AROUND_PART: Final = 2
"""Points on either side of the first divergent one.
Choice: they show whether it is a jump; more repeat the curve."""
LOG_ITEMS_SHOWN: Final = 8
"""Gaps, steps and runs of a log on one line.
Choice: eight fit two lines; their number stands behind them."""

# The terminal and the page.
PAGE_WIDTH: Final = 100
"""Columns where no terminal says how many it has.
Choice: wide enough for two paths and four numbers, narrow enough for a mail or an issue."""
LONG_TABLE: Final = 500
"""A table of more rows, each of which fits a line, is drawn line by line.
Measured: the table of a library takes a millisecond for each row, this a microsecond; both look alike."""
LINES_AT_ONCE: Final = 500
"""So many rows of a long table are printed at a time.
Measured: rich takes each line off the front of what is left, so that 50,000 at once took five seconds."""
LONGEST_CELL: Final = 500
"""A cell of a table is cut to this many characters.
Choice: names of layers have a hundred at most, what is said of one four hundred; a longer one pushes all rows away."""
LONGEST_PASTED: Final = 20_000
"""A line to paste is cut to this many characters.
Choice: commands and lines of code are never so long; a name of megabytes in one makes it useless, cut or not."""
NARROWEST_PATH: Final = 12
"""Columns that a path gets at least.
Choice: fewer leave nothing of it to recognise."""
LABEL_COLUMN_WIDTH: Final = 30
"""Columns of the labels of a panel.
Choice: the longest label has 28; wider columns take the room of the facts."""
ONE_LINE_WIDTH: Final = 24
"""Characters of a cell that stand on one line in every column of the page.
Choice: a word and its number; longer cells may break."""

# The notebook.
CELL_SECONDS: Final = 120
"""Time after which a cell of the notebook is given up.
Measured: a cell takes one or two seconds; the first one waits for imports on a busy machine."""
KERNEL_OUTPUT_SHOWN: Final = 600
"""Last characters of what a kernel wrote before it died.
Choice: the last line of a traceback, with a long path in it."""

# Plots.
NAME_WIDTH: Final = 34
"""Characters of a name that is written into a plot, beside what it marks.
Choice: a third of the width of the plot."""
HISTOGRAM_NAME_WIDTH: Final = 42
"""Characters of a name in the title of the histogram.
Choice: what the words of the title leave of the width."""
LEGEND_NAME_WIDTH: Final = 25
"""Characters of the name of a log in a legend, in which both sides and the points without a number stand.
Choice: four entries share the width."""
LAYER_NAME_LINES: Final = 4
"""Lines of names that the plot of layers by depth has room for.
Choice: more cover the points."""
STEP_NAME_LINES: Final = 3
"""The same of the plots of steps, whose upper half is lower.
Choice: more cover the points."""
MARKED_POINTS: Final = 80
"""Points of a curve that are marked one by one.
Choice: more run into one another."""
MARKED_EVENTS: Final = 40
"""Events that are marked in a plot of losses.
Choice: more cannot be distinguished."""
LABELLED_SHARE: Final = 0.05
"""Share of a bar from which on its number is written into it.
Choice: narrower parts have no room for three digits."""

CULPRITS_SHOWN: Final = 6
"""Culprits of one rung that the ladder lists, so that all rungs fit a screen.
Choice: fewer would hide what one correction leaves; `--all` of the rung's own command and its page list every one."""

DIFFERENCES_SHOWN: Final = 12
"""New or mended things that are listed beside a baseline, so that both fit a screen.
Choice: twice CULPRITS_SHOWN, since a rung is named beside what it found; `--json` holds all."""

# The page.

CARD_LINES: Final = 3
"""Lines of source that a card lists where one cause has several places.
Choice: fewer hide that one class makes all; more repeat what the table of the rung has."""

ROWS_IN_PAGE: Final = 40
"""Rows of a table that stand in the page itself; a script makes the others when they come into view.
Choice: more than a screen shows, so that a reader without scripts sees the worst; more would slow the opening."""

FILTERED_TABLE_ROWS: Final = 8
"""Rows from which on a table has a field to filter by.
Choice: fewer rows are read at a glance; a field above each small table would be noise."""

UNBROKEN_CHARACTERS: Final = 24
"""Characters of a cell that stand on one line in every column.
Choice: a layer's path of three names fits; wider cells would push a table beyond a phone's screen."""

PLOT_MARKS: Final = 600
"""Marks of one series in a plot; of more, the worst of each few is drawn.
Choice: one mark each two pixels of a page; more could not be seen apart and would make the file larger."""

OPEN_CARDS: Final = 12
"""Cards of parts at fault that stand open in a section; the others are folded.
Choice: a reader corrects one at a time; more would hide the plots and tables below."""

FAR_MULTIPLE: Final = 10.0
"""Multiple of its limit at which the colour of a module deepens: a digit is lost.
Choice: a smaller one would colour what a looser limit passes; a larger one would hide half a digit."""

FARTHER_MULTIPLE: Final = 1000.0
"""Multiple of its limit at which the colour of a module is the deepest: three digits are lost.
Choice: faults of settings are mostly beyond it, and what they pull along mostly below."""

# Generation.

TOKENS_BEFORE: Final = 2
"""Positions in front of the first token that differs which a table shows.
Choice: fewer leave it without context; more push the difference out of sight."""

TOKENS_AFTER: Final = 6
"""Positions from the first token that differs on which a table shows.
Choice: fewer do not show whether both texts meet again; `--all` lists every one."""

TOKEN_CHARACTERS: Final = 24
"""So many characters of a token's word are shown.
Choice: longer ones are runs of spaces or noise."""

FOLDED_CHARACTERS: Final = 400
"""Characters of a list of sentences from which on the page folds it away under its title.
Choice: four lines of a wide page; what has no counterpart takes twenty in a large model, and is seldom looked for."""

# emulation: what a chip is expected to do

MOST_AT_RISK: Final = 10
"""So many layers are shown as most at risk.
Choice: more are no help to somebody who looks for the first layers to keep in float32; all of them are in the result.
"""

MOST_CHANGED_TENSORS: Final = 10
"""Tensors that changed most between two iterations, of which the terminal shows so many.
Choice: what fits a screen with what stands around it."""
GRID_ROWS: Final = 60
"""Rows of a grid of layers, or steps, by rank. Choice: more names are not read beside one another."""
GRID_LABELS: Final = 64
"""Ranks or rows that are named along a grid. Choice: more texts overlap at the width of a page."""
GRID_MIDDLE: Final = 0.7
"""Strength of the colour of what departs by once its limit, or its own size. Choice: both sides of it can be seen."""
GRID_FAINTEST: Final = 0.45
"""Strength of the colour of what departs the least. Choice: it still stands out from what is aligned."""
GRID_RANKS: Final = 128
"""Ranks that a grid shows at most. Choice: narrower columns are not seen on a page; those that depart come first."""
GRID_ALIGNED: Final = 0.25
"""Strength of the colour of what is aligned. Choice: it is seen, and what departs is seen first."""

DEPARTURES_SHOWN: Final = 12
"""Departures of a training, or trends of a record, that a terminal shows.
Choice: the first one is the one to look at; the others show where it led."""

HEAT_SCALE: Final = 1e3
"""A relative difference of a training times this is as dark as a factor of a limit is in the other grids.
Choice: differences below 1e-3 are rounding, and faintest."""

# memory

GARBLED_SHOWN: Final = 12
"""So many garbled texts are listed, unless all are asked for.
Choice: half a screen; what makes one text garbled mostly makes all of them so."""

MEMORY_LAYERS_SHOWN: Final = 25
"""So many layers are listed of a step's memory, those that take most, unless all are asked for.
Choice: a screen; the rest is counted."""

FORMULA_CALLS_SHOWN: Final = 12
"""So many calls that agree with their formula are listed unless all are wanted.
Choice: one of each operator of a layer; those that depart are always listed."""
