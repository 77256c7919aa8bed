import lightning as L
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader
from torchmetrics.classification import MulticlassAccuracy

from data import Clips
from net import VideoNet


class Module(L.LightningModule):
    def __init__(self, classes: int = 400, lr: float = 1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = VideoNet(classes)
        self.accuracy = MulticlassAccuracy(classes)

    def forward(self, clips):
        return self.net(clips)

    def training_step(self, batch, batch_idx):
        clips, labels = batch
        loss = F.cross_entropy(self(clips), labels)
        self.log("train_loss", loss.detach(), prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        clips, labels = batch
        self.accuracy.update(self(clips), labels)

    def on_validation_epoch_end(self):
        self.log("val_accuracy", self.accuracy.compute(), sync_dist=True)
        self.accuracy.reset()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)


def main():
    L.seed_everything(1)
    train = DataLoader(Clips("train"), batch_size=16, shuffle=True, num_workers=8, drop_last=True)
    val = DataLoader(Clips("val"), batch_size=16, num_workers=8)
    trainer = L.Trainer(accelerator="gpu", devices=8, strategy="ddp", max_epochs=30, precision="bf16-mixed")
    trainer.fit(Module(), train, val)


if __name__ == "__main__":
    main()
