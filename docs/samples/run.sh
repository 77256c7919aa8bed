#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=4
export CUDA_VISIBLE_DEVICES=0,1,2,3
torchrun --nproc_per_node=4 train.py
