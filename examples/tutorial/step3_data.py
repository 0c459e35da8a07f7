"""Tutorial, step 3: each process has its own part of the data."""

import keras
from sklearn.datasets import load_digits

import horovod.keras as hvd

hvd.init()

digits = load_digits()
images, labels = digits.data / 16.0, digits.target
x_train, y_train = images[:1400], labels[:1400]
x_test, y_test = images[1400:], labels[1400:]

share = len(x_train) // hvd.size()
mine = slice(hvd.rank() * share, (hvd.rank() + 1) * share)
x_train, y_train = x_train[mine], y_train[mine]

model = keras.Sequential(
    [
        keras.Input((64,)),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dense(10, activation="softmax"),
    ]
)
optimizer = keras.optimizers.Adam(0.002 * hvd.size())
optimizer = hvd.DistributedOptimizer(optimizer)
model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])

callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
model.fit(
    x_train,
    y_train,
    batch_size=32,
    epochs=15,
    validation_data=(x_test, y_test),
    callbacks=callbacks,
    verbose=2,
)

model.save("digits.keras")
print(f"Test accuracy {model.evaluate(x_test, y_test, verbose=0)[1]:.1%}")
