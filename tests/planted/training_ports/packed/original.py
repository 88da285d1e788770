"""A tagger of sentences: characters and words through bidirectional LSTMs over packed sequences."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

CHARS, CHAR_DIM, CHAR_HIDDEN = 27, 8, 6
WORDS, WORD_DIM, HIDDEN, LAYERS = 60, 20, 16, 2
TAGS, PAD = 7, 0


class CharEncoder(nn.Module):
    """Characters of a word to the last states of both directions."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(CHARS, CHAR_DIM, padding_idx=0)
        self.lstm = nn.LSTM(CHAR_DIM, CHAR_HIDDEN, batch_first=True, bidirectional=True)

    def forward(self, chars, lengths):
        b, t, c = chars.shape
        flat = lengths.reshape(-1).clamp(min=1).long().cpu()
        packed = pack_padded_sequence(
            self.embedding(chars.reshape(b * t, c)), flat, batch_first=True, enforce_sorted=False
        )
        _, (h, _) = self.lstm(packed)
        return torch.cat([h[0], h[1]], dim=-1).view(b, t, 2 * CHAR_HIDDEN)


class Tagger(nn.Module):
    """Scores of the tags for every word; a word that is padding gets what the classifier makes of zeros."""

    def __init__(self):
        super().__init__()
        self.word_embedding = nn.Embedding(WORDS, WORD_DIM, padding_idx=0)
        self.char_encoder = CharEncoder()
        self.lstm = nn.LSTM(WORD_DIM + 2 * CHAR_HIDDEN, HIDDEN, num_layers=LAYERS, batch_first=True, bidirectional=True)
        self.norm = nn.LayerNorm(2 * HIDDEN)
        self.hidden2mid = nn.Linear(2 * HIDDEN, HIDDEN)
        self.mid2tag = nn.Linear(HIDDEN, TAGS)

    def forward(self, words, lengths, chars, char_lengths):
        x = torch.cat([self.word_embedding(words), self.char_encoder(chars, char_lengths)], dim=-1)
        packed = pack_padded_sequence(x, lengths.long().cpu(), batch_first=True, enforce_sorted=False)
        out, _ = self.lstm(packed)
        out, _ = pad_packed_sequence(out, batch_first=True, total_length=words.shape[1])
        return self.mid2tag(torch.tanh(self.hidden2mid(self.norm(out))))


def build():
    """The tagger with its random weights."""
    torch.manual_seed(41)
    model = Tagger()
    with torch.no_grad():
        model.norm.weight.normal_(1.0, 0.1)
        for name, p in model.named_parameters():
            if name in ("norm.bias", "hidden2mid.bias", "mid2tag.bias"):
                p.normal_(0.0, 0.05)
    return model


def tag_loss(model, batch):
    """Mean cross entropy over the real words."""
    scores = model(batch["words"], batch["lengths"], batch["chars"], batch["char_lengths"])
    return F.cross_entropy(scores.reshape(-1, TAGS), batch["tags"].reshape(-1), ignore_index=PAD)


def training():
    """Model, loss, optimizer and step."""
    model = build()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    def step(batch):
        model.train()
        optimizer.zero_grad()
        loss = tag_loss(model, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.6)
        optimizer.step()
        return loss

    return {"model": model, "loss": tag_loss, "optimizer": optimizer, "step": step}
