from dataclasses import dataclass, field

from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
)


@dataclass
class Options:
    model: str = field(default="/models/base")
    data: str = field(default="/data/text.jsonl")
    length: int = field(default=2048)


def main():
    options, args = HfArgumentParser((Options, TrainingArguments)).parse_args_into_dataclasses()
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    tokenizer.pad_token = tokenizer.eos_token

    def encode(rows):
        return tokenizer(rows["text"], truncation=True, max_length=options.length)

    data = load_dataset("json", data_files=options.data, split="train")
    with args.main_process_first():
        data = data.map(encode, batched=True, remove_columns=data.column_names)

    model = AutoModelForCausalLM.from_pretrained(options.model, torch_dtype="bfloat16")
    model.gradient_checkpointing_enable()
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=data,
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
    )
    trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
    if trainer.is_world_process_zero():
        tokenizer.save_pretrained(args.output_dir)
    trainer.save_model()


if __name__ == "__main__":
    main()
