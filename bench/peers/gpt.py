"""The GPT of bench/gpt.h for PyTorch, with windows made up: what its layers compute is what ours do."""

import torch
from torch import nn

LAYERS, WIDTH, HEADS, CONTEXT, BATCH, VOCABULARY = 4, 256, 4, 128, 16, 96


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def heads(self, x):
        return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)

    def forward(self, x):
        q, k, v = (self.heads(project(x)) for project in (self.q_proj, self.k_proj, self.v_proj))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out_proj(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2, self.attention = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH), Attention()
        self.fc1, self.gelu, self.fc2 = nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.fc2(self.gelu(self.fc1(self.norm2(x))))


class Gpt(nn.Module):
    """Logits [windows * tokens, vocabulary]."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Parameter(torch.randn(CONTEXT, WIDTH) / WIDTH**0.5)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions[:ids.shape[1]]
        return self.head(self.norm(self.blocks(x))).flatten(0, 1)


def windows():
    """Ids [BATCH, CONTEXT], and as labels the ids behind them."""
    row = torch.randint(VOCABULARY, (BATCH, CONTEXT + 1))
    return row[:, :-1].contiguous(), row[:, 1:].flatten()
