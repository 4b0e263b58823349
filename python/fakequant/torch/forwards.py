"""Modules of torch whose forward asks for more than torch.fx can follow (fast paths, lengths), and what it does: {class: function}.
Whether a mask is causal is a hint there, which nothing depends on."""
from torch import nn


def _encoder_layer(self, src, src_mask=None, src_key_padding_mask=None, is_causal=False):
    if self.norm_first:
        x = src + self._sa_block(self.norm1(src), src_mask, src_key_padding_mask)
        return x + self._ff_block(self.norm2(x))
    x = self.norm1(src + self._sa_block(src, src_mask, src_key_padding_mask))
    return self.norm2(x + self._ff_block(x))


def _decoder_layer(self, tgt, memory, tgt_mask=None, memory_mask=None, tgt_key_padding_mask=None, memory_key_padding_mask=None,
                   tgt_is_causal=False, memory_is_causal=False):
    own, other = (tgt_mask, tgt_key_padding_mask), (memory_mask, memory_key_padding_mask)
    if self.norm_first:
        x = tgt + self._sa_block(self.norm1(tgt), *own)
        x = x + self._mha_block(self.norm2(x), memory, *other)
        return x + self._ff_block(self.norm3(x))
    x = self.norm1(tgt + self._sa_block(tgt, *own))
    x = self.norm2(x + self._mha_block(x, memory, *other))
    return self.norm3(x + self._ff_block(x))


def _encoder(self, src, mask=None, src_key_padding_mask=None, is_causal=None):
    for layer in self.layers:
        src = layer(src, src_mask=mask, src_key_padding_mask=src_key_padding_mask)
    return src if self.norm is None else self.norm(src)


def _decoder(self, tgt, memory, tgt_mask=None, memory_mask=None, tgt_key_padding_mask=None, memory_key_padding_mask=None,
             tgt_is_causal=None, memory_is_causal=False):
    for layer in self.layers:
        tgt = layer(tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask, tgt_key_padding_mask=tgt_key_padding_mask,
                    memory_key_padding_mask=memory_key_padding_mask)
    return tgt if self.norm is None else self.norm(tgt)


def _transformer(self, src, tgt, src_mask=None, tgt_mask=None, memory_mask=None, src_key_padding_mask=None, tgt_key_padding_mask=None,
                 memory_key_padding_mask=None, src_is_causal=None, tgt_is_causal=None, memory_is_causal=False):
    memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask)
    return self.decoder(tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask, tgt_key_padding_mask=tgt_key_padding_mask,
                        memory_key_padding_mask=memory_key_padding_mask)


FORWARDS = {nn.TransformerEncoderLayer: _encoder_layer, nn.TransformerDecoderLayer: _decoder_layer,
            nn.TransformerEncoder: _encoder, nn.TransformerDecoder: _decoder, nn.Transformer: _transformer}
