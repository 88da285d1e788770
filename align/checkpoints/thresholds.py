"""The limits of the readers of checkpoints. Each says why it is there, and where its number comes from."""

from __future__ import annotations

from typing import Final

# opening

HEAD_BYTES: Final = 512
"""So many bytes of a file are read to recognise its format.
Choice: the mark of a tar file stands at byte 257; a smaller number would miss it, a larger one would read more of every
file."""

# training state

FEWEST_STATES: Final = 2
"""So many parameters of one state, or kinds of state, prove an optimizer's state that no number stands beside.
Choice: one name may look like a state by chance, as a layer called `moment1` does; three would miss small models."""

# tensors that are no weights by themselves

DEEPEST_COMPANION: Final = 3
"""What belongs to a packed weight stands at most so many parts of a name below its module.
Source: bitsandbytes writes `weight.quant_state.bitsandbytes__nf4`, and no tool more parts."""
FEWEST_PLACEHOLDERS: Final = 2
"""So many layers with a weight and a bias that are a single one each are what ZeRO-3 leaves in the place of weights.
Choice: one layer of a single feature may hold two ones by chance, a bias is 0 as it begins; three would miss small
models."""
MOST_COMPARED_PARTS: Final = 8
"""So many other ranks are opened to see whether they hold other values.
Choice: tensor parallel ranks lie side by side, or as far apart as there are replicas; more only takes longer."""
MOST_COMPARED_TENSORS: Final = 8
"""So many of the largest matrices of a rank are held against those of another one.
Choice: what is sharded is among the largest; all of them would read every file of a training."""
FEWEST_COPIES: Final = 2
"""So many weights with a copy of their own prove averaged copies (EMA) among the weights.
Choice: one pair of names may be alike by chance; three would miss a model of one layer."""

# quantized weights

LONGEST_QUANT_STATE: Final = 1 << 14
"""The text that bitsandbytes keeps beside a weight of four bits is read if it has no more bytes.
Choice: it has some two hundred; a larger number would let it take more memory."""

# nested files

DEEPEST_KEY: Final = 32
"""Weights are looked for under so many keys, one inside the other.
Choice: training checkpoints keep them two or three keys down; a larger number only helps files that nest for ever."""
DEEPEST_TREE: Final = 10
"""So many containers, one inside the other, are opened of a training's state.
Choice: a moment lies five deep (Lightning: optimizer_states, 0, state, 7, exp_avg); a larger number only helps files
that nest for ever."""
MOST_VISITED_VALUES: Final = 3_000_000
"""So many values beside the weights are looked at to count the tensors in them; a file in which more are reached is
refused.
Choice: values that share their parts are counted again and again, and in hostile files without end; a larger number
would take seconds more, a smaller one would refuse large files."""
MOST_NAMED_ENTRIES: Final = 500_000
"""So many containers that may hold weights, and entries beside them, get a name; a file with more is refused.
Choice: the largest models have some 100,000 tensors; a larger number would take more memory for the names."""
LONGEST_KEY: Final = 200
"""The name of an entry is cut to this many characters where it is shown.
Choice: it is longer than names of parameters are; longer ones are made to fill a terminal."""
ENTRIES_SHOWN: Final = 12
"""So many entries of a mapping are shown where nothing in it can be taken.
Choice: enough to see what the file is; more would hide the message."""
LONGEST_ENTRY_NAME: Final = 60
"""The name of an entry is cut to this many characters in a list of several.
Choice: more would break the lines of the list, fewer would make names of parameters alike."""

# headers

SPARE_JSON_MARKS: Final = 1_000_000
"""JSON may hold so many marks (commas, brackets) beyond what its size explains.
Choice: texts of a header's metadata hold marks too; a larger number would let parsing take more memory."""
MOST_ARRAY_ELEMENTS: Final = 1 << 59
"""An array of more elements is not believed.
Source: NumPy counts bytes in 63 bits, of elements of up to 16 bytes, and leaves axes of length 0 out of the product."""
LONGEST_INDEX_BYTES: Final = 32 << 20
"""An index of more bytes is refused.
Measured: an index of 140,000 tensors has 14 MB."""
MOST_SHARDS: Final = 99_999
"""An index of more shards is refused.
Source: names of shards have five digits (`model-00001-of-00003.safetensors`, Hugging Face)."""
LONGEST_DIRECTORY_BYTES: Final = 32 << 20
"""A zip file whose directory has more bytes is refused.
Measured: a directory of 140,000 tensors has 10 MB."""
MOST_DEFLATED: Final = 1040
"""A record that claims more bytes for each of its compressed ones is refused.
Source: Deflate cannot shrink more than about 1032 to 1 (RFC 1951: 258 bytes by at least two bits)."""
PACKED_BLOCK_BYTES: Final = 1 << 14
"""Compressed records are read in blocks of so many bytes.
Choice: unpacked they make 17 MB at most; a smaller number takes more calls, a larger one more memory."""
USUAL_NPY_HEADER_BYTES: Final = 128
"""So many bytes of an array in a zip file are read first.
Source: NumPy pads the headers of usual arrays to 128 bytes (numpy/lib/format.py)."""
LONGEST_NPY_HEADER_BYTES: Final = 1 << 16
"""The header of an array in a zip file is read if it has no more bytes.
Choice: that of a plain array has some hundred; version 1 of the format has 16 bits for its length."""
LONGEST_RECORD_NAME: Final = 1 << 15
"""The name of an array in a zip file must have fewer bytes to be written.
Source: a zip file has 16 bits for the length of a name; half of that is more than any name needs."""
LONGEST_SAFETENSORS_HEADER_BYTES: Final = 100_000_000
"""A safetensors file whose header has more bytes is refused.
Source: the reference implementation (safetensors/src/tensor.rs, MAX_HEADER_SIZE)."""

# pickles

MOST_VIEWS_OF_A_BYTE: Final = 8
"""Each byte of a file may lie in so many tensors, on average, beside MOST_REPEATED_BYTES.
Choice: the flat weights of an LSTM and their parts make two; a larger number would let a small file claim more
memory."""
MOST_REPEATED_BYTES: Final = 1 << 30
"""A view may be larger than its storage up to this many bytes: it repeats elements (stride 0).
Choice: forty bytes could claim terabytes so; a smaller number would refuse masks that were saved expanded."""
DEEPEST_WRAPPING: Final = 4
"""A tensor may be wrapped so often.
Choice: a parameter wraps a tensor, and a subclass wraps a parameter; more only helps files that nest for ever."""
LONGEST_PICKLE_BYTES: Final = 256 << 20
"""A pickle of more bytes is refused.
Choice: the pickle of a checkpoint holds names and sizes, some 100 bytes for each tensor; a larger number would let one
take more memory."""
MOST_MEMBERS_SHOWN: Final = 20
"""So many members of a tar file around a checkpoint are looked at.
Choice: they are only shown, so that a user sees what to unpack."""
LONGEST_KEPT_BYTES: Final = 256
"""Longer texts in a pickle of NumPy arrays stay in the file until they are asked for: protocol 2 keeps bytes as such.
Choice: names and dtypes are shorter."""
MOST_OPCODES: Final = 12_000_000
"""A pickle of more opcodes is refused.
Measured: torch writes 32 opcodes for a tensor, so that this is enough for 370,000 of them; each makes at most one value
of eighty bytes, a gigabyte together."""
MOST_COSTLY_OPCODES: Final = 3_500_000
"""So many opcodes of a pickle may take more than one value: entries of the memo, globals, items copied out of lists.
Measured: torch writes 8 of these for a tensor, so that this is enough for 430,000 of them."""
LONGEST_GLOBAL_NAME: Final = 300
"""The name of a class or function in a pickle is cut to this many characters where it is shown.
Choice: it is longer than such names are; longer ones are made to fill a terminal."""
MOST_MAKER_ARGUMENTS: Final = 8
"""So many arguments of a function that makes a module are looked at for its class.
Choice: those of pickle's own functions have three; a larger number would take longer on hostile files."""
MOST_VALUES_LOOKED_AT: Final = 12
"""So many values of a mapping are looked at to see whether it holds NumPy arrays.
Choice: all values of such a mapping are arrays; one mapping may be referred to very often, and a larger number would
take longer each time."""

# protobuf

MOST_PROTOBUF_FIELDS: Final = 1 << 22
"""A protobuf file of more fields is refused.
Measured: to scan so many takes two seconds; a graph of 200,000 nodes, or a file of 500,000 tensors, has fewer."""
LONGEST_TEXT_BYTES: Final = 1 << 16
"""A name in a protobuf file of more bytes is refused.
Choice: names have some hundred; a larger number would let names take more memory."""
MOST_OFFSET_DIGITS: Final = 19
"""An offset or a size that is written as text may have so many digits.
Source: sizes of files are numbers of 63 bits, which have 19 digits at most."""
DEEPEST_GRAPH: Final = 32
"""Graphs inside graphs are followed down to this depth; a file that nests them deeper is refused.
Source: protobuf's own readers stop at a hundred messages, and each graph in a graph takes three."""
MOST_IR_VERSION: Final = 256
"""A file is taken for ONNX only if its version, and the texts about it, stay below this.
Choice: versions are below 20 so far, and names of producers have some ten letters; a larger number would take other
protobuf files for ONNX."""
LONGEST_METADATA_SHOWN: Final = 100
"""A text of the metadata of an ONNX file is cut to this many characters.
Choice: enough to see which program made the file; some write whole documents there."""

# dumps of other tools

LONGEST_DUMP_BYTES: Final = 256 << 20
"""JSON of another tool's dump with more bytes is refused.
Choice: a call of a function takes about a kilobyte; a larger number would take many gigabytes of memory to parse."""

# parts of ranks

DEEPEST_TILING: Final = 16
"""The chunks of a tensor are set apart by cuts inside of cuts, at most so deep.
Choice: a mesh of four axes needs four; chunks that are peeled off one by one would take quadratic time."""
LONGEST_TRACKER_BYTES: Final = 256
"""So many bytes of a file that names the last step of a run are read.
Choice: it holds a number or the name of a folder, which has no more bytes on any file system."""
MOST_RANKS: Final = 65_536
"""A checkpoint of more ranks is refused.
Choice: the largest trainings cut a model over some thousands; more would only let a small file name any number."""
MOST_COUNTED_VALUES: Final = 3_000_000
"""So many values beside the weights of a rank are looked at to count the tensors in them; more are left uncounted.
Choice: as MOST_VISITED_VALUES."""
