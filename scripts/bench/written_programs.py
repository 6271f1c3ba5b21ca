"""Training and inference steps in pure JAX, as users of layer and optimizer libraries write them: optimizers, dropout,
normalization with state, masks, cells in scans, sampling, search, rollouts. Many keep a loop with matrix products
inside. None of them was looked at while the hook was written."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from scripts.programs.case import Case, f32, s32, words

Array = Any
Tree = Any

# ---- layers and optimizers


def dense(p: dict[str, Array], x: Array) -> Array:
    return x @ p["w"] + p["b"]


def layer(rows: int, columns: int) -> Tree:
    """The arguments of a dense layer."""
    return {"w": f32(rows, columns, low=-0.1, high=0.1), "b": f32(columns, low=-0.1, high=0.1)}


def norm(p: dict[str, Array], x: Array) -> Array:
    """Layer normalization."""
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * p["scale"] + p["shift"]


def dropout(key: Array, x: Array, rate: float) -> Array:
    return jnp.where(jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0)


def clipped(gradient: Tree, most: float = 1.0) -> Tree:
    """Gradients by their global norm."""
    size = jnp.sqrt(sum(jnp.square(g).sum() for g in jax.tree.leaves(gradient)))
    return jax.tree.map(lambda g: g * jnp.minimum(1, most / (size + 1e-6)), gradient)


def adam(p: Tree, m: Tree, v: Tree, g: Tree, step: Array, decay: float = 0.0) -> tuple[Tree, Tree, Tree]:
    m = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, m, g)
    v = jax.tree.map(lambda a, b: 0.999 * a + 0.001 * b * b, v, g)
    count = step + 1.0

    def new(p: Array, m: Array, v: Array) -> Array:
        change = m / (1 - 0.9**count) / (jnp.sqrt(v / (1 - 0.999**count)) + 1e-8)
        return p - 1e-3 * (change + decay * p)

    return jax.tree.map(new, p, m, v), m, v


def zeros(p: Tree) -> Tree:
    return jax.tree.map(jnp.zeros_like, p)


def cross_entropy(logits: Array, labels: Array) -> Array:
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1).mean()


# ---- training


def adam_epoch(p: Tree, images: Array, labels: Array, word: Array) -> Any:
    """An epoch of steps with dropout and Adam."""

    def loss(p: Tree, x: Array, y: Array, key: Array) -> Array:
        h = dropout(key, jax.nn.gelu(dense(p["first"], x)), 0.1)
        h = jax.nn.gelu(dense(p["second"], h))
        return cross_entropy(dense(p["last"], h), y)

    def step(state: Tree, batch: Tree) -> tuple[Tree, Array]:
        p, m, v, count, key = state
        key, own = jax.random.split(key)
        value, g = jax.value_and_grad(loss)(p, *batch, own)
        p, m, v = adam(p, m, v, clipped(g), count)
        return (p, m, v, count + 1, key), value

    start = (p, zeros(p), zeros(p), jnp.float32(0), jax.random.wrap_key_data(word))
    state, losses = lax.scan(step, start, (images, labels))
    return state[0], losses


def batch_norm_steps(p: Tree, running: Tree, x: Array, y: Array) -> Any:
    """Steps with batch normalization, whose running statistics are state, and momentum."""

    def apply(p: Tree, running: Tree, x: Array) -> tuple[Array, Tree]:
        new = {}
        for name in ("a", "b"):
            h = x @ p[name]["w"]
            mean, variance = h.mean(0), h.var(0)
            before = running[name]
            new[name] = {
                "mean": 0.9 * before["mean"] + 0.1 * mean,
                "var": 0.9 * before["var"] + 0.1 * variance,
            }
            x = jax.nn.relu((h - mean) * lax.rsqrt(variance + 1e-5) * p[name]["scale"] + p[name]["b"])
        return dense(p["last"], x), new

    def loss(p: Tree, running: Tree) -> tuple[Array, Tree]:
        out, new = apply(p, running, x)
        return jnp.square(out - y).mean(), new

    def step(_: int, state: Tree) -> Tree:
        p, velocity, running = state
        g, running = jax.grad(loss, has_aux=True)(p, running)
        velocity = jax.tree.map(lambda v, g: 0.9 * v + g, velocity, g)
        return jax.tree.map(lambda p, v: p - 0.01 * v, p, velocity), velocity, running

    return lax.fori_loop(0, 10, step, (p, zeros(p), running))


def masked_attention(p: Tree, x: Array, mask: Array, heads: int = 4) -> Array:
    width = x.shape[-1]
    q, k, v = (jnp.moveaxis((x @ p[n]).reshape(*x.shape[:-1], heads, width // heads), -2, -3) for n in "qkv")
    scores = jnp.where(mask, q @ jnp.swapaxes(k, -1, -2) / jnp.sqrt(width / heads), -1e9)
    return jnp.moveaxis(jax.nn.softmax(scores) @ v, -3, -2).reshape(x.shape) @ p["o"]


def block(p: Tree, x: Array, mask: Array) -> Array:
    x = x + masked_attention(p, norm(p["n1"], x), mask)
    return x + dense(p["down"], jax.nn.gelu(dense(p["up"], norm(p["n2"], x))))


def block_arguments(width: int) -> Tree:
    weights = {n: f32(width, width, low=-0.1, high=0.1) for n in "qkvo"}
    norms = {n: {"scale": f32(width, low=0.9, high=1.1), "shift": f32(width, low=-0.1, high=0.1)} for n in ("n1", "n2")}
    return {**weights, **norms, "up": layer(width, 4 * width), "down": layer(4 * width, width)}


def transformer_step(p: Tree, m: Tree, v: Tree, x: Array, y: Array) -> Any:
    """AdamW on two blocks with a causal mask, rematerialized."""
    mask = jnp.tril(jnp.ones((x.shape[1], x.shape[1]), bool))

    def loss(p: Tree) -> Array:
        h = x
        for each in p:
            h = jax.checkpoint(block)(each, h, mask)
        return jnp.square(h - y).mean()

    value, g = jax.value_and_grad(loss)(p)
    return value, adam(p, m, v, clipped(g), jnp.float32(3), 0.01)


def lstm(p: Tree, xs: Array, labels: Array) -> Any:
    """A gradient through a cell in a scan."""

    def loss(p: Tree) -> Array:
        def cell(state: tuple[Array, Array], x: Array) -> tuple[tuple[Array, Array], Array]:
            h, c = state
            i, f, g, o = jnp.split(x @ p["x"] + h @ p["h"] + p["b"], 4, -1)
            c = jax.nn.sigmoid(f + 1) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        start = jnp.zeros((xs.shape[1], p["h"].shape[0]))
        (h, _), hs = lax.scan(cell, (start, start), xs)
        return cross_entropy(h @ p["out"], labels) + 1e-3 * jnp.square(hs).mean()

    return jax.tree.map(lambda p, g: p - 0.1 * g, p, clipped(jax.grad(loss)(p)))


def vae_step(p: Tree, x: Array, word: Array) -> Any:
    """A step of a variational autoencoder."""

    def loss(p: Tree) -> Array:
        h = jax.nn.relu(dense(p["encoder"], x))
        mean, spread = jnp.split(dense(p["code"], h), 2, -1)
        z = mean + jnp.exp(0.5 * spread) * jax.random.normal(jax.random.wrap_key_data(word), mean.shape)
        logits = dense(p["out"], jax.nn.relu(dense(p["decoder"], z)))
        rebuilt = jnp.maximum(logits, 0) - logits * x + jnp.log1p(jnp.exp(-jnp.abs(logits)))
        return (rebuilt.sum(-1) - 0.5 * (1 + spread - mean**2 - jnp.exp(spread)).sum(-1)).mean()

    value, g = jax.value_and_grad(loss)(p)
    return value, adam(p, zeros(p), zeros(p), g, jnp.float32(0))


def gan_step(g: Tree, d: Tree, real: Array, noise: Array) -> Any:
    """A step of the discriminator, then one of the generator."""

    def make(g: Tree, z: Array) -> Array:
        return jnp.tanh(dense(g["b"], jax.nn.leaky_relu(dense(g["a"], z), 0.2)))

    def judge(d: Tree, x: Array) -> Array:
        return dense(d["b"], jax.nn.leaky_relu(dense(d["a"], x), 0.2))

    def loss_d(d: Tree) -> Array:
        return (jax.nn.softplus(-judge(d, real)) + jax.nn.softplus(judge(d, make(g, noise)))).mean()

    d = jax.tree.map(lambda p, t: p - 0.01 * t, d, jax.grad(loss_d)(d))
    new = jax.grad(lambda g: jax.nn.softplus(-judge(d, make(g, noise))).mean())(g)
    return jax.tree.map(lambda p, t: p - 0.01 * t, g, new), d


def lora_steps(frozen: Array, p: Tree, x: Array, y: Array) -> Any:
    """A few steps of two small factors beside a frozen matrix."""

    def loss(p: Tree) -> Array:
        h = jax.nn.silu(x @ frozen + (x @ p["down"]) @ p["up"] * 2)
        return jnp.square(h @ frozen.T - y).mean() + 1e-4 * jnp.abs(h).mean()

    def step(state: Tree, count: Array) -> tuple[Tree, Array]:
        p, m, v = state
        value, g = jax.value_and_grad(loss)(p)
        return adam(p, m, v, g, count), value

    return lax.scan(step, (p, zeros(p), zeros(p)), jnp.arange(8.0))


def mixture(p: Tree, x: Array) -> Any:
    """Two of eight experts for each row, with a loss that balances them."""

    def loss(p: Tree) -> Array:
        gates = jax.nn.softmax(x @ p["gate"])
        weight, chosen = lax.top_k(gates, 2)
        weight = weight / weight.sum(-1, keepdims=True)
        sent = (jax.nn.one_hot(chosen, gates.shape[-1]) * weight[..., None]).sum(1)
        h = jax.nn.gelu(jnp.einsum("nd,edh->enh", x, p["in"]))
        out = jnp.einsum("enh,ehd,ne->nd", h, p["out"], sent)
        return jnp.square(out - x).mean() + 0.01 * (gates.mean(0) * (sent > 0).mean(0)).sum()

    return jax.tree.map(lambda p, g: p - 0.1 * g, p, jax.grad(loss)(p))


# ---- sampling, search and sequences


def denoised(p: Tree, x: Array, word: Array) -> Array:
    """Forty steps of a diffusion model's sampler."""
    beta = jnp.linspace(1e-4, 0.05, 40)
    alpha = 1 - beta
    bar = jnp.cumprod(alpha)

    def step(state: tuple[Array, Array], t: Array) -> tuple[tuple[Array, Array], None]:
        x, key = state
        key, own = jax.random.split(key)
        angles = t * jnp.exp(-jnp.arange(16) / 4.0)
        time = jnp.concatenate([jnp.sin(angles), jnp.cos(angles)])
        h = jax.nn.silu(dense(p["first"], x) + time @ p["time"])
        noise = dense(p["last"], jax.nn.silu(dense(p["middle"], h)))
        x = (x - beta[t] / jnp.sqrt(1 - bar[t]) * noise) / jnp.sqrt(alpha[t])
        x = x + jnp.where(t > 0, jnp.sqrt(beta[t]), 0) * jax.random.normal(own, x.shape)
        return (jnp.clip(x, -3, 3), key), None

    return lax.scan(step, (x, jax.random.wrap_key_data(word)), jnp.arange(40)[::-1])[0][0]


def decoded(p: Tree, embedding: Array, start: Array, word: Array) -> Any:
    """Tokens drawn one by one with a cache of keys and values, until all rows have ended."""
    rows, steps, width = start.shape[0], 24, embedding.shape[1]

    def going_on(state: Tree) -> Array:
        return (state[0] < steps) & ~state[3].all()

    def step(state: Tree) -> Tree:
        n, token, (keys, values), over, key, found = state
        key, own = jax.random.split(key)
        x = embedding[token]
        keys = keys.at[:, n].set(x @ p["k"])
        values = values.at[:, n].set(x @ p["v"])
        scores = jnp.einsum("bd,btd->bt", x @ p["q"], keys) / jnp.sqrt(width)
        scores = jax.nn.softmax(jnp.where(jnp.arange(steps) <= n, scores, -1e9))
        x = norm(p["n1"], x + jnp.einsum("bt,btd->bd", scores, values) @ p["o"])
        x = norm(p["n2"], x + dense(p["down"], jax.nn.gelu(dense(p["up"], x))))
        token = jnp.where(over, 0, jax.random.categorical(own, x @ embedding.T / 4))
        return n + 1, token, (keys, values), over | (token == 1), key, found.at[:, n].set(token)

    cache = jnp.zeros((2, rows, steps, width))
    begun = (0, start, (cache[0], cache[1]), start < 0, jax.random.wrap_key_data(word), jnp.zeros((rows, steps), int))
    return lax.while_loop(going_on, step, begun)[5]


def beams(p: Tree, embedding: Array, h: Array) -> Any:
    """The best four sequences for each row, by a recurrent model."""
    rows, width, words_count = h.shape[0], h.shape[1], embedding.shape[0]

    def step(state: Tree, _: None) -> tuple[Tree, tuple[Array, Array]]:
        h, token, score = state
        h = jnp.tanh(embedding[token] @ p["x"] + h @ p["h"])
        total = score[..., None] + jax.nn.log_softmax(h @ embedding.T)
        score, best = lax.top_k(total.reshape(rows, -1), 4)
        parent, token = best // words_count, best % words_count
        return (jnp.take_along_axis(h, parent[..., None], 1), token, score), (parent, token)

    begun = (jnp.broadcast_to(h[:, None], (rows, 4, width)), jnp.zeros((rows, 4), int), jnp.array([0, -9.0, -9, -9]))
    begun = (*begun[:2], jnp.broadcast_to(begun[2], (rows, 4)))
    (_, _, score), (parents, tokens) = lax.scan(step, begun, None, length=12)

    def back(at: Array, one: tuple[Array, Array]) -> tuple[Array, Array]:
        return jnp.take_along_axis(one[0], at, 1), jnp.take_along_axis(one[1], at, 1)

    return lax.scan(back, jnp.broadcast_to(jnp.arange(4), (rows, 4)), (parents, tokens), reverse=True)[1], score


def ctc(logits: Array, labels: Array) -> Any:
    """The gradient of the loss of an alignment, by a scan over time in logarithms."""

    def loss(logits: Array) -> Array:
        rows, length = labels.shape
        lines = jax.nn.log_softmax(logits)
        marks = jnp.zeros((rows, 2 * length + 1), int).at[:, 1::2].set(labels + 1)
        skips = jnp.pad((marks[:, 2:] != marks[:, :-2]) & (marks[:, 2:] > 0), ((0, 0), (2, 0)))

        def step(alpha: Array, line: Array) -> tuple[Array, None]:
            one = jnp.pad(alpha[:, :-1], ((0, 0), (1, 0)), constant_values=-1e5)
            two = jnp.where(skips, jnp.pad(alpha[:, :-2], ((0, 0), (2, 0)), constant_values=-1e5), -1e5)
            there = jnp.take_along_axis(line, marks, 1)
            return jnp.logaddexp(jnp.logaddexp(alpha, one), two) + there, None

        first = jnp.full(marks.shape, -1e5).at[:, :2].set(jnp.take_along_axis(lines[0], marks[:, :2], 1))
        alpha = lax.scan(step, first, lines[1:])[0]
        return -jnp.logaddexp(alpha[:, -1], alpha[:, -2]).mean()

    return jax.value_and_grad(loss)(logits)


# ---- reinforcement learning


def ppo_epochs(p: Tree, seen: Array, actions: Array, before: Array, rewards: Array, values: Array) -> Any:
    """Advantages by a scan backwards, then epochs of the clipped loss."""

    def advantage(carry: Array, one: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        reward, value, following = one
        carry = reward + 0.99 * following - value + 0.99 * 0.95 * carry
        return carry, carry

    following = jnp.concatenate([values[1:], values[-1:]])
    found = lax.scan(advantage, jnp.zeros(values.shape[1]), (rewards, values, following), reverse=True)[1]
    wanted = (found + values).reshape(-1)
    found = ((found - found.mean()) / (found.std() + 1e-8)).reshape(-1)

    def loss(p: Tree) -> Array:
        h = jnp.tanh(dense(p["b"], jnp.tanh(dense(p["a"], seen))))
        chances = jax.nn.log_softmax(dense(p["policy"], h))
        ratio = jnp.exp(jnp.take_along_axis(chances, actions[:, None], 1)[:, 0] - before)
        gain = jnp.minimum(ratio * found, jnp.clip(ratio, 0.8, 1.2) * found).mean()
        entropy = -(jnp.exp(chances) * chances).sum(-1).mean()
        return -gain + 0.5 * jnp.square(dense(p["value"], h)[:, 0] - wanted).mean() - 0.01 * entropy

    def step(state: Tree, count: Array) -> tuple[Tree, Array]:
        p, m, v = state
        value, g = jax.value_and_grad(loss)(p)
        return adam(p, m, v, clipped(g, 0.5), count), value

    return lax.scan(step, (p, zeros(p), zeros(p)), jnp.arange(4.0))


def q_update(p: Tree, target: Tree, memory: Tree, picks: Array) -> Any:
    """An update of two estimates from a memory of steps, with a slowly following target."""

    def q(p: Tree, x: Array) -> Array:
        return dense(p["c"], jax.nn.relu(dense(p["b"], jax.nn.relu(dense(p["a"], x)))))

    batch = jax.tree.map(lambda a: a[picks], memory)

    def loss(p: Tree) -> Array:
        best = q(p, batch["next"]).argmax(-1)
        there = jnp.take_along_axis(q(target, batch["next"]), best[:, None], 1)[:, 0]
        wanted = lax.stop_gradient(batch["reward"] + 0.99 * (1 - batch["over"]) * there)
        off = jnp.take_along_axis(q(p, batch["seen"]), batch["action"][:, None], 1)[:, 0] - wanted
        return jnp.where(jnp.abs(off) < 1, 0.5 * off * off, jnp.abs(off) - 0.5).mean()

    value, g = jax.value_and_grad(loss)(p)
    p, m, v = adam(p, zeros(p), zeros(p), clipped(g, 10.0), jnp.float32(0))
    return p, m, v, jax.tree.map(lambda t, p: 0.995 * t + 0.005 * p, target, p), value


def acted(p: Tree, state: Array, word: Array) -> Any:
    """A policy acts in many pendulums, and what it saw is stacked."""

    def step(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], tuple[Array, Array, Array]]:
        state, key = carry
        key, own = jax.random.split(key)
        angle, speed = state[:, 0], state[:, 1]
        seen = jnp.stack([jnp.cos(angle), jnp.sin(angle), speed], -1)
        mean = dense(p["b"], jnp.tanh(dense(p["a"], seen)))[:, 0]
        force = jnp.clip(2 * jnp.tanh(mean) + 0.1 * jax.random.normal(own, mean.shape), -2, 2)
        cost = (jnp.mod(angle + jnp.pi, 2 * jnp.pi) - jnp.pi) ** 2 + 0.1 * speed**2 + 0.001 * force**2
        speed = jnp.clip(speed + (15 * jnp.sin(angle) + 3 * force) * 0.05, -8, 8)
        return (jnp.stack([angle + 0.05 * speed, speed], -1), key), (seen, force, -cost)

    return lax.scan(step, (state, jax.random.wrap_key_data(word)), None, length=100)[1]


def evolved(p: Array, x: Array, y: Array, word: Array) -> Any:
    """A few steps of an evolution strategy, with mirrored noise and ranks."""

    def fitness(flat: Array) -> Array:
        return -jnp.square(jnp.tanh(x @ flat[:512].reshape(16, 32)) @ flat[512:] - y).mean()

    def step(state: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Array]:
        p, key = state
        key, own = jax.random.split(key)
        noise = jax.random.normal(own, (64, p.size))
        noise = jnp.concatenate([noise, -noise])
        scores = jax.vmap(lambda n: fitness(p + 0.05 * n))(noise)
        ranks = jnp.argsort(jnp.argsort(scores)) / 127.0 - 0.5
        return (p + 0.02 * ranks @ noise, key), scores.mean()

    (p, _), scores = lax.scan(step, (p, jax.random.wrap_key_data(word)), None, length=10)
    return p, scores


# ---- physics and statistics


def cloth(position: Array, speed: Array, stiffness: Array) -> Any:
    """The gradient of where a hanging cloth of springs ends, through all steps."""

    def force(x: Array, k: Array) -> Array:
        total = jnp.zeros_like(x).at[..., 1].add(-0.5)
        for axis in (0, 1):
            d = jnp.diff(x, axis=axis)
            size = jnp.sqrt(jnp.square(d).sum(-1, keepdims=True) + 1e-6)
            pull = k * (size - 0.1) * d / size
            before, after = [(0, 0)] * 3, [(0, 0)] * 3
            before[axis], after[axis] = (0, 1), (1, 0)
            total = total + jnp.pad(pull, before) - jnp.pad(pull, after)
        return total

    def loss(k: Array) -> Array:
        def step(state: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
            x, v = state
            v = (v + 0.01 * force(x, k)) * 0.999
            return (x + 0.01 * v.at[0].set(0), v), None

        x, _ = lax.scan(jax.checkpoint(step), (position, speed), None, length=60)[0]
        return jnp.square(x[-1]).mean()

    return jax.value_and_grad(loss)(stiffness)


def hamiltonian(x: Array, y: Array, start: Array, word: Array) -> Any:
    """Chains of a Hamiltonian sampler for logistic regression."""

    def energy(w: Array) -> Array:
        return jax.nn.softplus(-(w @ x.T) * y).sum() / 16 + 0.5 * jnp.square(w).sum()

    def draw(state: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Array]:
        w, key = state
        key, one, two = jax.random.split(key, 3)
        speed = jax.random.normal(one, w.shape)

        def leap(_: int, c: tuple[Array, Array]) -> tuple[Array, Array]:
            w, v = c
            v = v - 0.01 * jax.grad(energy)(w)
            w = w + 0.02 * v
            return w, v - 0.01 * jax.grad(energy)(w)

        new, last = lax.fori_loop(0, 8, leap, (w, speed))
        gain = energy(w) + 0.5 * jnp.square(speed).sum() - energy(new) - 0.5 * jnp.square(last).sum()
        w = jnp.where(jnp.log(jax.random.uniform(two)) < gain, new, w)
        return (w, key), w.mean(0)

    return lax.scan(draw, (start, jax.random.wrap_key_data(word)), None, length=20)[1]


def coupled_flow(p: Tree, x: Array) -> Any:
    """The gradient of the likelihood of a flow of coupled halves."""

    def loss(p: Tree) -> Array:
        z, total = x, jnp.zeros(x.shape[0])
        for each in p:
            a, b = jnp.split(z, 2, -1)
            scale, shift = jnp.split(dense(each["b"], jnp.tanh(dense(each["a"], a))), 2, -1)
            scale = jnp.tanh(scale)
            z = jnp.concatenate([b * jnp.exp(scale) + shift, a], -1)
            total = total + scale.sum(-1)
        return (0.5 * jnp.square(z).sum(-1) - total).mean()

    return jax.tree.map(lambda p, g: p - 0.01 * g, p, jax.grad(loss)(p))


WRITTEN = (
    Case("adam_epoch", adam_epoch, (
        {"first": layer(196, 256), "second": layer(256, 256), "last": layer(256, 10)},
        f32(8, 128, 196), s32(8, 128, high=10), words(2))),
    Case("batch_norm_steps", batch_norm_steps, (
        {**{n: {**layer(64 if n == "a" else 128, 128), "scale": f32(128)} for n in "ab"}, "last": layer(128, 4)},
        {n: {"mean": f32(128), "var": f32(128, low=0.5, high=1)} for n in "ab"},
        f32(512, 64), f32(512, 4))),
    Case("transformer_step", transformer_step, (
        *([[block_arguments(64)] * 2] * 2),
        [jax.tree.map(lambda a: f32(*a.shape, low=0, high=0.1), block_arguments(64))] * 2,
        f32(4, 64, 64), f32(4, 64, 64))),
    Case("lstm", lstm, (
        {"x": f32(32, 256, low=-0.1, high=0.1), "h": f32(64, 256, low=-0.1, high=0.1), "b": f32(256),
         "out": f32(64, 10)}, f32(40, 64, 32), s32(64, high=10))),
    Case("vae_step", vae_step, (
        {"encoder": layer(196, 256), "code": layer(256, 32), "decoder": layer(16, 256), "out": layer(256, 196)},
        f32(128, 196, low=0, high=1), words(2))),
    Case("gan_step", gan_step, (
        {"a": layer(32, 256), "b": layer(256, 128)}, {"a": layer(128, 256), "b": layer(256, 1)},
        f32(256, 128), f32(256, 32))),
    Case("lora_steps", lora_steps, (
        f32(256, 256, low=-0.1, high=0.1),
        {"down": f32(256, 4, low=-0.1, high=0.1), "up": f32(4, 256, low=-0.1, high=0.1)},
        f32(256, 256), f32(256, 256))),
    Case("mixture", mixture, (
        {"gate": f32(64, 8), "in": f32(8, 64, 128, low=-0.1, high=0.1), "out": f32(8, 128, 64, low=-0.1, high=0.1)},
        f32(256, 64))),
    Case("denoised", denoised, (
        {"first": layer(64, 256), "middle": layer(256, 256), "last": layer(256, 64),
         "time": f32(32, 256, low=-0.1, high=0.1)}, f32(128, 64), words(2))),
    Case("decoded", decoded, (block_arguments(64), f32(512, 64, low=-1, high=1), s32(32, high=512), words(2))),
    Case("beams", beams, (
        {"x": f32(64, 64, low=-0.2, high=0.2), "h": f32(64, 64, low=-0.2, high=0.2)}, f32(500, 64), f32(16, 64))),
    Case("ctc", ctc, (f32(60, 32, 30), s32(32, 12, high=29))),
    Case("ppo_epochs", ppo_epochs, (
        {"a": layer(16, 64), "b": layer(64, 64), "policy": layer(64, 6), "value": layer(64, 1)},
        f32(2048, 16), s32(2048, high=6), f32(2048, low=-2.5, high=-1), f32(64, 32), f32(64, 32))),
    Case("q_update", q_update, (
        *({n: layer(*s) for n, s in (("a", (16, 128)), ("b", (128, 128)), ("c", (128, 6)))},) * 2,
        {"seen": f32(5000, 16), "next": f32(5000, 16), "action": s32(5000, high=6), "reward": f32(5000),
         "over": f32(5000, low=0, high=1)}, s32(256, high=5000))),
    Case("acted", acted, ({"a": layer(3, 64), "b": layer(64, 1)}, f32(512, 2), words(2))),
    Case("evolved", evolved, (f32(544, low=-0.3, high=0.3), f32(64, 16), f32(64), words(2))),
    Case("cloth", cloth, (f32(24, 24, 3), f32(24, 24, 3, low=-0.1, high=0.1), f32(low=1, high=2))),
    Case("hamiltonian", hamiltonian, (f32(200, 16), f32(200, low=-1, high=1), f32(32, 16), words(2))),
    Case("coupled_flow", coupled_flow, (
        [{"a": layer(32, 128), "b": layer(128, 64)}] * 4, f32(512, 64))),
    Case("denoising_step", jax.grad(lambda p, x, word: jnp.square(denoised(p, x, word)).mean()), (
        {"first": layer(64, 64), "middle": layer(64, 64), "last": layer(64, 64),
         "time": f32(32, 64, low=-0.1, high=0.1)}, f32(64, 64), words(2))),
)  # fmt: skip
