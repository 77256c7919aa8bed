import torch

model = torch.nn.Linear(512, 1).cuda()
optimizer = torch.optim.AdamW(model.parameters())
losses = []
for step in range(1000):
    loss = model(torch.randn(64, 512, device="cuda")).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss)      # keeps the loss, and what it refers to, of every step
