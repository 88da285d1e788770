FAULTS = [
    {
        "name": "real_label_one",
        "old": "cross_entropy(real, 0.9)",
        "new": "cross_entropy(real, 1.0)",
        "where": "loss",
        "module": "",
        "answer": "The one-sided label smoothing is missing: real images have the target 1 in place of 0.9.",
        "moves": True,
    },
    {
        "name": "matching_left_out",
        "old": "        return cross_entropy(score, 1.0) + 5.0 * ops.square(gap).mean()",
        "new": "        return cross_entropy(score, 1.0)",
        "where": "loss",
        "module": "",
        "answer": "The feature-matching term is missing from the generator's loss.",
        "moves": True,
    },
    {
        "name": "saturating_loss",
        "old": "        return cross_entropy(score, 1.0) + 5.0",
        "new": "        return -cross_entropy(score, 0.0) + 5.0",
        "where": "loss",
        "module": "",
        "answer": "The generator maximises the discriminator's error on fakes (the saturating loss) in place of "
        "minimising the cross entropy against 1 (the non-saturating one).",
        "moves": True,
    },
    {
        "name": "matching_by_sum",
        "old": "5.0 * ops.square(gap).mean()",
        "new": "5.0 * ops.square(gap).sum()",
        "where": "loss",
        "module": "",
        "answer": "The feature-matching term is summed over the features, not averaged.",
        "moves": True,
    },
    {
        "name": "real_score_detached",
        "old": "        return cross_entropy(real, 0.9)",
        "new": "        return cross_entropy(ops.stop_gradient(real), 0.9)",
        "where": "gradients",
        "module": "",
        "answer": "The scores of the real images are cut from the gradient, so that the discriminator learns from "
        "fakes only: a detach too many.",
        "moves": True,
    },
    {
        "name": "optimizers_exchanged",
        "old": "    train_critic = nn.TrainOneStepCell(CriticLoss(pair), critic_opt)\n"
        "    train_painter = nn.TrainOneStepCell(PainterLoss(pair), painter_opt)",
        "new": "    painter_opt = nn.SGD(painter_params, learning_rate=0.02, momentum=0.5)\n"
        "    critic_opt = Adam(critic_params, learning_rate=2e-4, beta1=0.5, beta2=0.999)\n"
        "    train_critic = nn.TrainOneStepCell(CriticLoss(pair), critic_opt)\n"
        "    train_painter = nn.TrainOneStepCell(PainterLoss(pair), painter_opt)",
        "where": "optimizer",
        "module": "",
        "answer": "The two optimizers are exchanged: the generator is trained by the discriminator's SGD and the "
        "discriminator by the generator's Adam.",
        "moves": True,
    },
    {
        "name": "painter_first_beta",
        "old": "Adam(painter_params, learning_rate=2e-4, beta1=0.5, beta2=0.999)",
        "new": "Adam(painter_params, learning_rate=2e-4, beta1=0.9, beta2=0.999)",
        "where": "optimizer",
        "module": "",
        "answer": "The generator's Adam has the first beta 0.9 (the default) in place of 0.5.",
        "moves": True,
    },
    {
        "name": "painter_before_critic",
        "old": '        critic_loss = train_critic(image, batch["noise_d"], y)\n'
        '        painter_loss = train_painter(image, batch["noise_g"], y)',
        "new": '        painter_loss = train_painter(image, batch["noise_g"], y)\n'
        '        critic_loss = train_critic(image, batch["noise_d"], y)',
        "where": "loop",
        "module": "",
        "answer": "The generator is updated before the discriminator; in the original the discriminator comes first.",
        "moves": True,
    },
    {
        "name": "one_noise_for_both",
        "old": 'train_painter(image, batch["noise_g"], y)',
        "new": 'train_painter(image, batch["noise_d"], y)',
        "where": "loop",
        "module": "",
        "answer": "The generator's update uses the noise of the discriminator's update again, not its own.",
        "moves": True,
    },
    {
        "name": "running_momentum",
        "old": "nn.BatchNorm2d(channels, momentum=0.9)",
        "new": "nn.BatchNorm2d(channels, momentum=0.1)",
        "where": "statistics",
        "module": "painter",
        "answer": "BatchNorm's momentum is copied from torch (0.1), but MindSpore's counts the other way: 0.9.",
        "moves": True,
    },
    {
        "name": "leak_default",
        "old": "nn.LeakyReLU(alpha=0.2)",
        "new": "nn.LeakyReLU(alpha=0.01)",
        "where": "forward",
        "module": "critic.trunk",
        "answer": "The discriminator's leaky ReLU has the slope 0.01 in place of 0.2.",
        "moves": True,
    },
    {
        "name": "class_table_not_trained",
        "old": "    critic_params = pair.critic.trainable_params()",
        "new": '    critic_params = [p for p in pair.critic.trainable_params() if "embedding" not in p.name]',
        "where": "params",
        "module": "critic.kinds",
        "answer": "The discriminator's class embedding is left out of its optimizer and never updated.",
        "moves": True,
    },
]
